"""A family's compiled programs: traced from shapes alone, shared by groups with equal ones, kept for later runs."""

import time
from collections.abc import Hashable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import jax

from fedsim.config.fields import FIXED
from fedsim.config.sections import Role
from fedsim.core.types import SimulationState
from fedsim.engine import build, factories, memory
from fedsim.engine.devices import compiler_options
from fedsim.engine.families import program_form
from fedsim.engine.group_inputs import Inputs, shapes_of
from fedsim.engine.plan import Plan
from fedsim.engine.programs import Executables, RunFunctions
from fedsim.engine.streamed.inputs import make_inputs

MAX_FAMILIES = 32  # whose programs stay in memory while a plan runs
MAX_KEPT_FAMILIES = 8  # after a run: each takes hundreds of the 65,530 memory maps of a Linux process


@dataclass(eq=False)
class Programs:
    """The programs of a family for a layout; all groups with equal ones share the object."""

    states: SimulationState
    """The shapes [B] of a batch's states, with their shardings."""
    lowered: Mapping[str, jax.stages.Lowered]
    """The traced programs by the names of `Executables`; empty once they are compiled."""
    options: Mapping[str, str | bool]
    """Of the compiler."""
    seconds: float
    """Of tracing and compiling them, until a group counts these."""
    _executables: Executables | None = field(default=None, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def compile(self) -> tuple[Executables, float]:
        """The programs, and the seconds of tracing and compiling them, to the first group that asks."""
        executables = self.executables()
        seconds, self.seconds = self.seconds, 0.0
        return executables, seconds

    def executables(self) -> Executables:
        """The programs, compiled by the first thread that calls this; what failed in another one is tried again."""
        with self._lock:
            if self._executables is None:
                started, options = time.perf_counter(), dict(self.options)
                compiled = {name: program.compile(options) for name, program in self.lowered.items()}
                self._executables, self.lowered = Executables(**compiled), {}
                self.seconds += time.perf_counter() - started
        return self._executables


_known: dict[Hashable, Programs] = {}
"""By `_key`, those that were used last at the end."""


def trace(inputs: Inputs) -> Programs:
    """The programs that read these inputs: traced now, with the settings that JAX has in this thread, unless known."""
    key = _key(inputs)
    _known[key] = programs = _known.pop(key, None) or _trace(inputs)
    keep_programs(MAX_FAMILIES)
    return programs


def run_functions(inputs: Inputs) -> RunFunctions:
    """The programs that read these inputs, as functions."""
    group, family, dataset = inputs.group, inputs.family, inputs.group.dataset
    method, largest = family.method(dataset), family.max_num_examples
    simulation = build.simulation(group.configs[0], dataset, group.layout, method, largest)
    mesh, num_test_clients = inputs.mesh, dataset.num_test_clients
    record = group.configs[0].record
    num_classes = dataset.num_classes if record.classes else 0
    return RunFunctions(
        simulation, group.max_rounds, num_test_clients, num_classes, record.local_steps, mesh, inputs.shared_spec
    )


def _trace(inputs: Inputs) -> Programs:
    started, functions, by_run = time.perf_counter(), run_functions(inputs), inputs.by_run
    shared, _, runs, losses, _ = inputs.shapes
    init = jax.jit(functions.init, out_shardings=by_run).trace(shared, runs, losses)
    states = shapes_of(init.out_info, by_run)
    lowered = {"init": init.lower()}
    for name, (function, shapes) in inputs.programs(functions, states).items():
        options: dict[str, Any] = {"out_shardings": by_run, "donate_argnums": 0} if name == "chunk" else {}
        lowered[name] = jax.jit(function, **options).lower(*shapes)
    return Programs(states, lowered, compiler_options(inputs.devices[0]), time.perf_counter() - started)


def _key(inputs: Inputs) -> Hashable:
    """Equal for inputs with equal programs."""
    group, family = inputs.group, inputs.family
    shapes, structure = jax.tree.flatten(inputs.shapes)
    plugins = factories.plugins([*family.servers.values(), *family.attacks.values()])
    # A plug-in may depend on more than its code, so a later run traces it again.
    in_program = any(FIXED[plugin.key].role in (Role.PROGRAM, Role.BRANCH) for plugin in plugins)
    return (
        family if in_program else None,
        program_form(group.configs, group.dataset),
        tuple(family.servers),
        tuple(family.attacks),
        tuple(sorted((name, kind) for name, (_, kind) in family.settings.items())),
        family.max_num_examples,
        tuple(shapes),
        structure,
        group.layout,
        inputs.devices,
        tuple(compiler_options(inputs.devices[0]).items()),
        tuple(jax.config.values.items()),
    )


def peak_memory(inputs: Inputs) -> memory.ProgramMemory | None:
    """The memory of a device that a group needs; None if the compiler runs out of memory."""
    programs = trace(inputs)
    try:
        executables = programs.executables()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return None
    peak = memory.peak(memory.program_memory(program) for program in executables if program is not None)
    return peak._replace(argument_bytes=peak.argument_bytes + inputs.other_batch_bytes(programs.states))


def clear_programs() -> None:
    """Frees the programs that earlier runs of this process have compiled."""
    keep_programs(0)


def keep_programs(number: int) -> None:
    """Frees all programs but those of the `number` families that were used last."""
    for key in list(_known)[: max(len(_known) - number, 0)]:
        del _known[key]


def start_compiling(plan: Plan, number: int, executor: Executor) -> tuple[Inputs, Programs]:
    """The inputs and the programs of group `number`, which `executor` compiles meanwhile."""
    inputs = make_inputs(plan.groups[number], plan.families[number])
    programs = trace(inputs)
    executor.submit(programs.executables)
    return inputs, programs
