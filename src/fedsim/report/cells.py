"""Settings as the cells of a published table, and their curves."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fedsim.config.components import flatten
from fedsim.config.roles import NOT_IN_IDS
from fedsim.report.keys import Run, configuration, planned, with_labels
from fedsim.report.results import Results
from fedsim.report.settings import Setting
from fedsim.runs.groups import ROUNDS

if TYPE_CHECKING:
    from fedsim.config.experiment import Experiment


def cells(
    results: Results, experiment: "Experiment", name: Callable[[Run, Setting], str]
) -> Iterator[tuple[str, Setting]]:
    """The settings with their names: that of `name`, and keys in which they differ from all runs of `experiment`.

    So a setting of the experiment has the name of its cell, and no other setting has. The keys are those that differ
    from the most similar run. Fewer or more rounds are last.
    """
    stored = (run for _, run in results.sources)
    runs = with_labels([configuration(flatten(run)) for run in planned(experiment, stored)])
    left_out = {*NOT_IN_IDS, "seed", "data.seed", ROUNDS}
    known = [{key: value for key, value in run.items() if key not in left_out} for run in runs]
    num_rounds = {run[ROUNDS] for run in runs}
    for setting in results.settings:
        run = results.runs[setting.runs[0]]
        keys = [key for key in run if key not in left_out]
        different = ([key for key in keys if key not in other or other[key] != run[key]] for other in known)
        others = [f"{key} = {run[key]}" for key in min(different, key=len)]
        rounds = [] if setting.rounds[-1] in num_rounds else [f"after {setting.rounds[-1]} rounds"]
        yield ", ".join([name(run, setting), *others, *rounds]), setting
