"""Heat maps with their numbers: of rules under attacks, and of a swept number over the share of corrupted clients."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedsim.report import style
from fedsim.report.cells import Results, data_sets
from fedsim.report.measure import Measure, measured_by
from fedsim.report.names import wrong_name
from fedsim.report.rows import ordered_rows, row_names
from fedsim.report.summary import final_mean
from fedsim.report.swept import Span, spans, value_of
from fedsim.report.table import after
from fedsim.report.worst import Grid, grids

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

LIGHT = 0.45  # of a colour map's range: numbers on colours below it are white
CLEAN, WORST = "No attack", "Worst"
LONG = 5  # characters of a column's name that still lie


class Look(NamedTuple):
    """What all panels of a figure share."""

    rows: Sequence[str]
    measure: Measure
    label: str  # of the colours


def _look(grid: Grid) -> Look:
    return Look(grid.rows, grid.measure, f"{grid.measure.title}{grid.measure.unit}\n{after(grid.cells.values())}")


def heat_maps(results: Results) -> dict[str, "Figure"]:
    """By name: each rule under each attack, a panel a share; and under the worst of them, over shares."""
    drawn = {}
    for grid in grids(results):
        suffix = "" if len(data_sets(results.cells)) == 1 else f"_{grid.data}"
        drawn[f"{grid.measure.name}_by_attack{suffix}"] = _by_attack(grid)
        drawn[f"{grid.measure.name}_worst_attack{suffix}"] = _worst(grid)
    return drawn


def _by_attack(grid: Grid) -> "Figure":
    labels = [*([CLEAN] if grid.clean else []), *(wrong_name(*wrong) for wrong in grid.wrongs), WORST]
    titles, tables = [], []
    for fraction in grid.fractions:
        table = []
        for row in grid.rows:
            cells = [grid.clean.get(row)] if grid.clean else []
            cells += [grid.cells.get((row, wrong, fraction)) for wrong in grid.wrongs]
            table.append([*map(grid.final, cells), grid.final(grid.worst(row, fraction))])
        titles.append(f"{100 * fraction:.3g} % corrupted")
        tables.append(np.asarray(table))
    return _draw(_look(grid), titles, tables, labels)


def _worst(grid: Grid) -> "Figure":
    fractions = [*([0.0] if grid.clean else []), *grid.fractions]
    of = lambda row, fraction: grid.worst(row, fraction) if fraction else grid.clean.get(row)
    table = [[grid.final(of(row, fraction)) for fraction in fractions] for row in grid.rows]
    title = f"Worst of {len(grid.wrongs)} attacks"
    return _draw(_look(grid), [title], [np.asarray(table)], [f"{100 * fraction:.3g} %" for fraction in fractions])


def planes(results: Results, measure: Measure) -> dict[str, "Figure"]:
    """By name, such as "accuracy_plane_dirichlet-alpha": a panel a rule, a swept number over the share of corrupted
    clients, and the worst of what is wrong with them in each place.

    For each number of the data or of a corruption that takes three values or more, beside as many shares.
    """
    found = spans(measured_by(measure, results.cells))
    return {f"{measure.name}_plane_{span.key.replace('.', '-')}": _plane(span, measure) for span in found}


def _plane(span: Span, measure: Measure) -> "Figure":
    key, cells, every, fractions = span
    names = dict(zip(cells, row_names(cells, without=(key,)), strict=True))
    every_rule = ordered_rows(cells, list(names.values()))
    rules = every_rule[: style.MAX_PANELS]
    worst = np.min if measure.higher_is_better else np.max  # NaN, where all runs diverged, is the worst
    tables = []
    for rule in rules:
        found: dict[tuple[float, float], list[float]] = {}
        for cell in cells:
            if names[cell] == rule:
                found.setdefault((value_of(cell, key) or 0.0, cell.fraction), []).append(final_mean(cell, measure))
        places = [[found.get((value, fraction), [math.nan]) for fraction in fractions] for value in every]
        tables.append(np.asarray([[worst(place) for place in line] for line in places]))
    lines = [f"{key} = {value:g}" for value in every]
    label = f"{measure.title}{measure.unit}\n{after(cells)}"
    columns = [f"{100 * fraction:.3g} %" for fraction in fractions]
    figure = _draw(Look(lines, measure, label), rules, tables, columns)
    if len(rules) < len(every_rule):
        style.remark(figure, style.cut(len(rules), len(every_rule), "panels"))
    return figure


def _draw(look: Look, titles: Sequence[str], tables: Sequence[np.ndarray], columns: Sequence[str]) -> "Figure":
    """A heat map a panel, with its numbers, on one scale of colours."""
    from matplotlib.figure import Figure

    across = 2 if len(tables) > 1 else 1
    down = -(-len(tables) // across)
    name = 0.075 * max(map(len, look.rows))
    width = 0.33 * len(columns) + 0.4
    height = 0.2 * len(look.rows) + (0.9 if max(map(len, columns)) > LONG else 0.45)
    figure = Figure(figsize=(name + across * width + 0.9, down * height + 0.2))
    panels = figure.subplots(down, across, sharey=True, squeeze=False).ravel().tolist()
    for panel in panels[len(tables) :]:
        panel.set_axis_off()
    finite = np.concatenate([table[np.isfinite(table)] for table in tables])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    shown = None
    for panel, title, table in zip(panels, titles, tables, strict=False):
        shown = _panel(panel, table, (low, max(high, low + 1e-9)), look, columns)
        panel.set_title(title)
    if shown is not None:
        figure.colorbar(shown, ax=panels, label=look.label, pad=0.01)
    return figure


def _panel(
    panel: "Axes", table: np.ndarray, limits: tuple[float, float], look: Look, columns: Sequence[str]
) -> "AxesImage":
    """Numbers on their colours; an empty place has none."""
    colours = "cividis" if look.measure.higher_is_better else "cividis_r"
    image = panel.imshow(np.ma.masked_invalid(table), vmin=limits[0], vmax=limits[1], cmap=colours, aspect="auto")
    panel.grid(visible=False)
    panel.set_yticks(range(len(look.rows)), look.rows)
    long = max(map(len, columns)) > LONG
    panel.set_xticks(range(len(columns)), columns, rotation=90 if long else 0)
    panel.tick_params(length=0)
    digits = 0 if look.measure.higher_is_better else 1
    for (row, column), value in np.ndenumerate(table):
        if np.isfinite(value):
            place = (value - limits[0]) / (limits[1] - limits[0])
            is_dark = place < LIGHT if look.measure.higher_is_better else place > 1 - LIGHT
            colour = "white" if is_dark else "black"
            panel.text(column, row, f"{value:.{digits}f}", color=colour, fontsize=6, ha="center", va="center")
    return image
