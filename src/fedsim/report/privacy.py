"""The differential privacy of settings whose rule records what it depends on (`fedsim.runs.privacy`)."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

import polars as pl
from polars import col

from fedsim.errors import FedsimError
from fedsim.report.results import Results
from fedsim.report.settings import Setting
from fedsim.runs.folder import read_rows
from fedsim.runs.privacy import EPSILONS, LAST, with_epsilon

Row = TypeVar("Row", bound=Hashable)
NOTE = (
    "{}: client-level differential privacy at delta = {delta:.3g}, by RDP accounting: epsilon = {epsilon:.4g} for "
    "replace-one adjacency and sampling without replacement, as in these runs; epsilon = {epsilon_poisson:.4g} for "
    "add-or-remove-one adjacency, assuming Poisson sampling."
)


def largest_epsilons(results: Results, rows: Mapping[Setting, Row]) -> tuple[dict[Row, dict[str, float]], list[str]]:
    """Of each row with an epsilon, the largest `delta` and `EPSILONS` of its runs, after their last rounds.

    None, and a sentence that says so, if dp-accounting is missing.
    """
    setting_of = {run: setting for setting in rows for run in setting.runs}
    runs = [run for run in setting_of if results.runs[run].get("norm_clipping.delta") is not None]
    if not runs:
        return {}, []
    ends = {position: setting_of[run].rounds[-1] for position, run in enumerate(runs)}
    info = read_rows("info", [results.sources[run][1] for run in runs])
    info = info.filter(col("round") <= col("run").replace_strict(ends, return_dtype=pl.Int32))
    try:
        info = with_epsilon(info, LAST)
    except FedsimError as error:
        return {}, [f"{error}."]
    largest: dict[Row, dict[str, float]] = {}
    for run, name, value in info.filter(col("name").is_in((*EPSILONS, "delta"))).select("run", "name", "value").rows():
        of_row = largest.setdefault(rows[setting_of[runs[run]]], {})
        of_row[name] = max(value, of_row.get(name, 0.0))
    return largest, []


def privacy_notes(results: Results, rows: Mapping[Setting, str]) -> list[str]:
    """A sentence on each row of a table with an epsilon, or on the missing dp-accounting."""
    largest, missing = largest_epsilons(results, rows)
    return [NOTE.format(row, **values) for row, values in largest.items()] + missing
