"""Settings as the cells of a published table, and their curves."""

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import polars as pl

from fedsim.config.components import flatten
from fedsim.config.roles import NOT_IN_IDS
from fedsim.report.keys import Run, configuration, with_labels
from fedsim.report.results import Results
from fedsim.report.settings import Setting
from fedsim.runs.groups import ROUNDS

if TYPE_CHECKING:
    from fedsim.config.experiment import Experiment


def cells(
    results: Results, experiment: "Experiment", name: Callable[[Run, Setting], str]
) -> Iterator[tuple[str, Setting]]:
    """The settings with their names: that of `name`, and keys with values that `experiment` does not have.

    So a setting of the experiment has the name of its cell, and no other setting has. Fewer or more rounds are last.
    """
    known = with_labels([configuration(flatten(run)) for run in experiment.runs()])
    keys = set().union(*known) - {*NOT_IN_IDS, "seed", "data.seed"}
    values = {key: [run[key] for run in known if key in run] for key in keys}
    for setting in results.settings:
        run = results.runs[setting.runs[0]]
        is_other = lambda key, value: key != ROUNDS and value not in values.get(key, [value])
        other = [f"{key} = {value}" for key, value in run.items() if is_other(key, value)]
        rounds = [] if setting.rounds[-1] in values[ROUNDS] else [f"after {setting.rounds[-1]} rounds"]
        yield ", ".join([name(run, setting), *other, *rounds]), setting


def curves(results: Results, setting: Setting, column: str = "test_accuracy") -> list[dict[int, float]]:
    """What each run of the setting recorded in a column of `Results.table`, by round; NaN for null."""
    rows = results.table.select("run", "round", pl.col(column).fill_null(math.nan)).sort("round")
    of_run = lambda run: rows.filter(rows["run"] == run)
    return [dict(zip(of_run(run)["round"], of_run(run)[column], strict=True)) for run in setting.runs]
