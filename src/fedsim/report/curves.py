"""Figures over rounds: a panel a data set and scenario, a line a rule; bands from the least to the greatest seed."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.report import style
from fedsim.report.cells import Cell, Results, data_sets, scenarios
from fedsim.report.names import data_name, ordered_rows, row_names, scenario_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scenario = tuple[str, float]
LOG_FROM = 3.0  # the loss gets a logarithmic axis where it rises above so many times that of the initial model


def accuracy(results: Results) -> "Figure":
    """Test accuracy over rounds."""
    return _over_rounds(results, lambda cell: 100 * cell.accuracy, "Test accuracy (%)")


def loss(results: Results) -> "Figure":
    """Test loss over rounds."""
    figure = _over_rounds(results, lambda cell: cell.loss, "Test loss (nats)")
    finite = [cell.loss[np.isfinite(cell.loss)] for cell in results.cells]
    first = [cell.loss[:, 0][np.isfinite(cell.loss[:, 0])] for cell in results.cells]
    if np.max(np.concatenate(finite), initial=0) > LOG_FROM * np.max(np.concatenate(first), initial=0):
        for panel in figure.axes:
            panel.set_yscale("log")
    return figure


def corrupted_weight(results: Results) -> "Figure":
    """The share of the weight that corrupted clients get, over rounds."""
    return _over_rounds(results, lambda cell: 100 * cell.corrupted_weight, "Weight of corrupted clients (%)", True)


def places(cells: list[Cell]) -> list[tuple[str, Scenario]]:
    """The (data set, scenario) that have cells."""
    found = {(cell.data, (cell.corruption, cell.fraction)) for cell in cells}
    return [(data, s) for data in data_sets(cells) for s in scenarios(cells) if (data, s) in found]


def place_name(place: tuple[str, Scenario], cells: list[Cell]) -> str:
    """A panel's title: the scenario, with the data set where there are several."""
    data, scenario = place
    return ": ".join([data_name(data)] * (len(data_sets(cells)) > 1) + [scenario_name(scenario)])


def _over_rounds(
    results: Results, value: Callable[[Cell], np.ndarray], label: str, corrupted_only: bool = False
) -> "Figure":
    names = row_names(results.cells)
    rows = ordered_rows(results.cells, names)
    every = [place for place in places(results.cells) if place[1][1] > 0 or not corrupted_only]
    shown = every[: style.MAX_PANELS]
    figure, panels = style.panels(len(shown))
    handles: dict[str, Any] = {}
    for panel, place in zip(panels, shown, strict=True):
        for cell, name in zip(results.cells, names, strict=True):
            position = rows.index(name)
            if (cell.data, (cell.corruption, cell.fraction)) != place or position >= style.MAX_LINES:
                continue
            values = np.ma.masked_invalid(value(cell))
            look = style.line(position)
            handles[name] = panel.plot(cell.rounds, values.mean(axis=0), **look)[0]
            panel.fill_between(cell.rounds, values.min(axis=0), values.max(axis=0), color=look["color"], **style.BAND)
        panel.set_title(place_name(place, results.cells))
        style.over_rounds(panel)
    handles = {name: handles[name] for name in rows if name in handles}
    cuts = (style.cut(len(shown), len(every), "panels"), style.cut(style.MAX_LINES, len(rows), "rows"))
    return style.finish(figure, panels, label, handles, "; ".join(filter(None, cuts)))
