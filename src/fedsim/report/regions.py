"""Which rule is ahead where: regions over a swept number and the share of corrupted clients."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedsim.report import style
from fedsim.report.cells import Cell, Results
from fedsim.report.measure import Measure, measured_by
from fedsim.report.names import section_of, wrong_name
from fedsim.report.paired import difference
from fedsim.report.rows import ordered_rows, row_names
from fedsim.report.settings import section, text
from fedsim.report.summary import final_mean
from fedsim.report.swept import Span, spans, value_of
from fedsim.report.table import after

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALE = 0.4  # opacity where others are not told apart from the rule that is ahead
MOST_RULES = len(style.COLOURS)


def regions(results: Results, measure: Measure) -> dict[str, "Figure"]:
    """By name, such as "accuracy_regions_dirichlet-alpha": a panel for each thing that is wrong with corrupted clients.

    In each place the rule whose final mean is best, and that mean; pale where the difference to another rule, seed by
    seed, does not leave out 0. Where there are several rules, and not more of them ahead than there are colours.
    """
    drawn = {}
    for span in spans(measured_by(measure, results.cells)):
        figure = _figure(span, measure)
        if figure is not None:
            drawn[f"{measure.name}_regions_{span.key.replace('.', '-')}"] = figure
    return drawn


def _figure(span: Span, measure: Measure) -> "Figure | None":
    from matplotlib.patches import Patch

    panels: dict[str, list[Cell]] = {}
    for cell in span.cells:
        if cell.fraction > 0:
            panels.setdefault(_wrong(cell, span.key), []).append(cell)
    around = {key for cell in span.cells for key, _ in cell.settings if section(key) != section_of(cell.aggregator)}
    names = dict(zip(span.cells, row_names(span.cells, without=around), strict=True))
    fractions = [fraction for fraction in span.fractions if fraction > 0]
    ahead = {
        title: [
            [_ahead(_at(cells, span.key, value, fraction), measure) for fraction in fractions] for value in span.values
        ]
        for title, cells in list(panels.items())[: style.MAX_PANELS]
    }
    first = {place[0] for table in ahead.values() for line in table for place in line if place}
    rules = ordered_rows(list(first), [names[cell] for cell in first])
    if len(set(names.values())) < 2 or not 0 < len(rules) <= MOST_RULES:
        return None
    colours = dict(zip(rules, style.COLOURS, strict=False))
    figure, axes = style.panels(len(ahead))
    for panel, (title, table) in zip(axes, ahead.items(), strict=True):
        panel.set_title(title)
        panel.set_xticks(range(len(fractions)), [f"{100 * fraction:.3g} %" for fraction in fractions])
        panel.set_yticks(range(len(span.values)), [f"{value:g}" for value in span.values])
        panel.set_xlabel("Corrupted clients")
        _draw(panel, table, {cell: colours[names[cell]] for cell in first}, measure)
    shown = f"{measure.title}{measure.unit} {after(span.cells)} of the rule that is ahead"
    told = f"{shown}; pale: not told apart from another"
    cut = style.cut(len(ahead), len(panels), "panels")
    handles = {rule: Patch(color=colour) for rule, colour in colours.items()}
    return style.finish(figure, axes, span.key, handles, style.note([told, cut]))


def _wrong(cell: Cell, key: str) -> str:
    """What is wrong with corrupted clients, with the settings that tell this apart."""
    own = section_of(cell.aggregator)
    settings = tuple((name, value) for name, value in cell.settings if name != key and section(name) != own)
    return ", ".join(filter(None, (wrong_name(cell.corruption, cell.attack), text(settings))))


def _at(cells: Sequence[Cell], key: str, value: float, fraction: float) -> list[Cell]:
    return [cell for cell in cells if cell.fraction == fraction and value_of(cell, key) == value]


def _ahead(cells: Sequence[Cell], measure: Measure) -> tuple[Cell, bool] | None:
    """The cell with the best final mean, and whether it is told apart from all others; None where there is none."""
    sign = 1 if measure.higher_is_better else -1
    means = {cell: sign * final_mean(cell, measure) for cell in cells}
    finite = {cell: mean for cell, mean in means.items() if math.isfinite(mean)}
    if not finite:
        return None
    best = max(finite, key=lambda cell: finite[cell])
    return best, all(_told_apart(best, other, measure) for other in finite if other is not best)


def _told_apart(cell: Cell, other: Cell, measure: Measure) -> bool:
    found = difference(cell, other, measure)
    return found is not None and found.half_width is not None and abs(found.mean) > found.half_width


def _draw(
    panel: "Axes", table: list[list[tuple[Cell, bool] | None]], colours: dict[Cell, str], measure: Measure
) -> None:
    from matplotlib.colors import to_rgba

    colour = lambda place: to_rgba(colours[place[0]], 1.0 if place[1] else PALE) if place else (1.0, 1.0, 1.0, 0.0)
    panel.imshow(np.asarray([[colour(place) for place in line] for line in table]), aspect="auto")
    panel.grid(visible=False)
    panel.tick_params(length=0)
    digits = 1 if measure.higher_is_better else 2
    for row, line in enumerate(table):
        for column, place in enumerate(line):
            if place:
                number = f"{final_mean(place[0], measure):.{digits}f}"
                panel.text(
                    column, row, number, ha="center", va="center", fontsize=7, color="white" if place[1] else "black"
                )
