"""The final test accuracy (or loss) over a swept number: a line a rule, bands from the least to the greatest seed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsim.report import style
from fedsim.report.cells import Cell, data_sets, places
from fedsim.report.curves import place_name
from fedsim.report.measure import Measure
from fedsim.report.names import data_name, section_of, wrong_name
from fedsim.report.rows import LAM, lam_label, ordered_rows, row_names
from fedsim.report.settings import section
from fedsim.report.table import after

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST = 3  # values that make a figure
LOG_FROM = 20.0  # greatest value over least from which an axis is logarithmic
FRACTION = "corruption.fraction"
FILE_NAMES = {FRACTION: "fraction", LAM: "lam"}  # others are whole: "client-learning_rate", say
LABELS = {FRACTION: "Corrupted clients (share)"}


def final_over_numbers(cells: Sequence[Cell], measure: Measure) -> dict[str, "Figure"]:
    """A figure for each number that takes three or more values, by name, such as "accuracy_over_lam"."""
    drawn = {}
    for key in dict.fromkeys([*FILE_NAMES, *(key for cell in cells for key, _ in cell.settings)]):
        groups = {title: group for title, group in _panels(cells, key).items() if len(values(group, key)) >= LEAST}
        if groups:
            name = FILE_NAMES.get(key, key.replace(".", "-"))
            drawn[f"{measure.name}_over_{name}"] = _figure(cells, key, groups, measure)
    return drawn


class Span(NamedTuple):
    """A swept number of the data or of a corruption, beside the share of corrupted clients: the axes of a plane."""

    key: str
    cells: list[Cell]
    values: list[float]
    fractions: list[float]


def spans(cells: Sequence[Cell]) -> list[Span]:
    """One for each such number that takes three values or more, beside as many shares."""
    of_rules = {section_of(cell.aggregator) for cell in cells} | {"client", "server"}
    found = []
    for key in dict.fromkeys(key for cell in cells for key, _ in cell.settings):
        with_key = [cell for cell in cells if value_of(cell, key) is not None]
        span = Span(key, with_key, values(with_key, key), sorted({cell.fraction for cell in with_key}))
        if section(key) not in of_rules and min(len(span.values), len(span.fractions)) >= LEAST:
            found.append(span)
    return found


def value_of(cell: Cell, key: str) -> float | None:
    """The number that `key` is in a cell; None where it is none, or says nothing there."""
    value = {FRACTION: cell.fraction, LAM: cell.lam, **dict(cell.settings)}.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def values(cells: Sequence[Cell], key: str) -> list[float]:
    """The different numbers that `key` is in the cells, ascending."""
    return sorted({value for cell in cells if (value := value_of(cell, key)) is not None})


def _panels(cells: Sequence[Cell], key: str) -> dict[str, list[Cell]]:
    """The cells of each panel by its title: a scenario; over fractions, a kind of corruption, clean cells as its 0."""
    if key != FRACTION:
        return {place_name(place, cells): [cell for cell in cells if cell.place == place] for place in places(cells)}
    panels = {}
    names = dict(zip(cells, row_names(cells, without=(key,)), strict=True))
    for data in data_sets(cells):
        mine = [cell for cell in cells if cell.data == data]
        for kind, attack in dict.fromkeys((cell.corruption, cell.attack) for cell in mine if cell.fraction > 0):
            is_so = lambda cell, wanted=(kind, attack): (cell.corruption, cell.attack) == wanted
            rows = {names[cell] for cell in mine if is_so(cell) and cell.fraction > 0}
            of_kind = [cell for cell in mine if is_so(cell) or cell.fraction == 0]
            name = wrong_name(kind, attack)
            title = f"{data_name(data)}: {name}" if len(data_sets(cells)) > 1 else name
            panels[title] = [cell for cell in of_kind if names[cell] in rows]
    return panels


def _figure(cells: Sequence[Cell], key: str, groups: dict[str, list[Cell]], measure: Measure) -> "Figure":
    shown = dict(list(groups.items())[: style.MAX_PANELS])
    names = dict(zip(cells, row_names(cells, without=(key,)), strict=True))
    rows = ordered_rows(cells, list(names.values()))
    figure, panels = style.panels(len(shown))
    handles: dict[str, Any] = {}
    for panel, (title, group) in zip(panels, shown.items(), strict=True):
        every = values(group, key)
        for position, row in enumerate(rows[: style.MAX_LINES]):
            if members := [cell for cell in group if names[cell] == row]:
                handles[row] = _line(panel, members, key, every, measure, position)
        if key == LAM:
            scale_x(panel, every, lam_label(group), log_from=0)
        else:
            scale_x(panel, every, LABELS.get(key, key))
        panel.set_title(title)
    cuts = (style.cut(len(shown), len(groups), "panels"), style.cut(style.MAX_LINES, len(rows), "rows"))
    handles = {row: handles[row] for row in rows if row in handles}
    label = f"{measure.title}{measure.unit}\n{after(cells)}"
    return style.finish(figure, panels, label, handles, style.note(cuts))


def _line(
    panel: "Axes", cells: Sequence[Cell], key: str, every: Sequence[float], measure: Measure, position: int
) -> Any:
    """A rule's line; of a rule for which `key` says nothing, the same value everywhere."""
    finals = {x: measure.final(cell) for cell in cells if (x := value_of(cell, key)) is not None}
    look = style.line(position) | ({"marker": "o"} if finals else {})
    finals = finals or dict.fromkeys(every, measure.final(cells[0]))
    at = sorted(finals)
    return style.with_band(panel, np.asarray(at), [finals[x] for x in at], look)


def scale_x(panel: "Axes", every: Sequence[float], label: str, log_from: float = LOG_FROM) -> None:
    """The axis of the swept number: its name, and logarithmic where the greatest is `log_from` times the least."""
    panel.set_xlabel(label)
    if every[0] > 0 and every[-1] / every[0] >= log_from:
        panel.set_xscale("log")
