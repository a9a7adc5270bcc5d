"""From a configuration to results: objects, plan, programs, groups, experiment."""

from fedsim.engine.compiling import clear_programs
from fedsim.engine.experiment import prepare, run_plan
from fedsim.engine.plan import Plan, make_plan

__all__ = ["Plan", "clear_programs", "make_plan", "prepare", "run_plan"]
