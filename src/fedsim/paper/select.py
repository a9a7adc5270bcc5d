"""Cells of a result by their configuration, and numbers of them."""

from typing import Any

import numpy as np

from fedsim.report.cells import Cell, Results
from fedsim.report.summary import LAST, mean


def find(results: Results, wanted: dict[str, Any]) -> list[Cell]:
    """The cells whose runs have these values by dotted key."""
    return [cell for cell in results.cells if wanted.items() <= config(results, cell).items()]


def one(results: Results, wanted: dict[str, Any]) -> Cell | None:
    """The first of `find`, or None."""
    return next(iter(find(results, wanted)), None)


def along(results: Results, key: str, wanted: dict[str, Any]) -> dict[Any, Cell]:
    """Of the cells of `find` that have `key`, the first for each of its values, by that value in ascending order."""
    cells: dict[Any, Cell] = {}
    for cell in find(results, wanted):
        if key in config(results, cell):
            cells.setdefault(config(results, cell)[key], cell)
    return dict(sorted(cells.items()))


def config(results: Results, cell: Cell) -> dict[str, Any]:
    """The configuration of a cell's first run, by dotted key; without the seed it is that of all."""
    return results.runs[cell.runs[0]]


def final(cell: Cell) -> float:
    """Mean test accuracy after the last round, in percent; NaN where no seed has a number."""
    return percent(mean(cell.accuracy[:, -1]))


def late(cell: Cell) -> float:
    """Mean test accuracy over the last five evaluations, in percent."""
    return percent(mean(cell.accuracy[:, -LAST:].ravel()))


def late_corrupted_weight(cell: Cell) -> float:
    """The share of the weight that corrupted clients got in the second half of the rounds, in percent."""
    second_half = cell.rounds > cell.rounds[-1] / 2
    return percent(mean(cell.corrupted_weight[:, second_half].ravel()))


def percent(share: float | None) -> float:
    """In percent; NaN for None."""
    return float(np.nan) if share is None else 100 * share
