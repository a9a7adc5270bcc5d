"""The final test accuracy over a swept number: a line a rule, bands from the least to the greatest seed."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.report import style
from fedsim.report.cells import Cell, Results, data_sets
from fedsim.report.curves import place_name, places
from fedsim.report.names import data_name, ordered_rows, row_names, scenario_parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST = 3  # values that make a figure
LOG_FROM = 20.0  # greatest value over least from which an axis is logarithmic
LABELS = {"corruption.fraction": "Corrupted clients (share)", "arfl.lam": "λ (in units of M)"}


def final_accuracy(results: Results) -> dict[str, "Figure"]:
    """A figure for each number that takes three or more values, by name, such as "accuracy_over_lam"."""
    others = dict.fromkeys(key for cell in results.cells for key, _ in cell.settings)
    drawn = {}
    for key in ("corruption.fraction", "arfl.lam", *others):
        groups = {title: cells for title, cells in _panels(results.cells, key) if len(values(cells, key)) >= LEAST}
        if groups:
            drawn[f"accuracy_over_{short(key)}"] = _figure(results, key, groups)
    return drawn


def short(key: str) -> str:
    """A key in a file's name: "fraction" and "lam"; others whole, "client-learning_rate" say."""
    return key.rpartition(".")[2] if key in LABELS else key.replace(".", "-")


def value_of(cell: Cell, key: str) -> float | None:
    """The number that `key` is in a cell; None where it is none, or says nothing there."""
    value = {"corruption.fraction": cell.fraction, "arfl.lam": cell.lam, **dict(cell.settings)}.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def values(cells: list[Cell], key: str) -> list[float]:
    """The different numbers that `key` is in the cells, ascending."""
    return sorted({value for cell in cells if (value := value_of(cell, key)) is not None})


def _panels(cells: list[Cell], key: str) -> list[tuple[str, list[Cell]]]:
    """(title, cells) of each panel: a scenario; over fractions, a kind of corruption, with the clean cells as its 0."""
    if key != "corruption.fraction":
        place = lambda cell: (cell.data, (cell.corruption, cell.fraction))
        return [(place_name(p, cells), [cell for cell in cells if place(cell) == p]) for p in places(cells)]
    found = []
    names = dict(zip(map(id, cells), row_names(cells, without=(key,)), strict=True))
    for data in data_sets(cells):
        mine = [cell for cell in cells if cell.data == data]
        for kind in dict.fromkeys(cell.corruption for cell in mine if cell.fraction > 0):
            rows = {names[id(cell)] for cell in mine if cell.corruption == kind and cell.fraction > 0}
            of_kind = [cell for cell in mine if cell.corruption == kind or cell.fraction == 0]
            title = scenario_parts((kind, 1.0))[0]
            title = f"{data_name(data)}: {title}" if len(data_sets(cells)) > 1 else title
            found.append((title, [cell for cell in of_kind if names[id(cell)] in rows]))
    return found


def _figure(results: Results, key: str, groups: dict[str, list[Cell]]) -> "Figure":
    shown = dict(list(groups.items())[: style.MAX_PANELS])
    names = dict(zip(map(id, results.cells), row_names(results.cells, without=(key,)), strict=True))
    rows = ordered_rows(results.cells, list(names.values()))
    figure, panels = style.panels(len(shown))
    handles: dict[str, Any] = {}
    for panel, (title, cells) in zip(panels, shown.items(), strict=True):
        for position, row in enumerate(rows[: style.MAX_LINES]):
            members = [cell for cell in cells if names[id(cell)] == row]
            if members:
                handles[row] = _line(panel, members, key, values(cells, key), position)
        scale_x(panel, values(cells, key), key)
        panel.set_title(title)
    cuts = (style.cut(len(shown), len(groups), "panels"), style.cut(style.MAX_LINES, len(rows), "rows"))
    handles = {row: handles[row] for row in rows if row in handles}
    return style.finish(figure, panels, "Final test accuracy (%)", handles, "; ".join(filter(None, cuts)))


def _line(panel: "Axes", cells: list[Cell], key: str, every: list[float], position: int) -> Any:
    """A rule's line; of a rule for which `key` says nothing, the same value everywhere."""
    finals = {x: 100 * cell.accuracy[:, -1] for cell in cells if (x := value_of(cell, key)) is not None}
    look = style.line(position) | ({"marker": "o"} if finals else {})
    finals = finals or dict.fromkeys(every, 100 * cells[0].accuracy[:, -1])
    at = sorted(finals)
    low, middle, high = (np.asarray([f(finals[value]) for value in at]) for f in (np.nanmin, np.nanmean, np.nanmax))
    panel.fill_between(at, low, high, color=look["color"], **style.BAND)
    return panel.plot(at, middle, **look)[0]


def scale_x(panel: "Axes", every: list[float], key: str) -> None:
    """The axis of the swept number: its name, and logarithmic where it spans much."""
    panel.set_xlabel(LABELS.get(key, key))
    if every[0] > 0 and (key == "arfl.lam" or every[-1] / every[0] >= LOG_FROM):
        panel.set_xscale("log")
