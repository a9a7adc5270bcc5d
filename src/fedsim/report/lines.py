"""Figures of lines: a panel a scenario, a line a rule, and a band over its splits or seeds."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsim.report import compare, style
from fedsim.report.accuracy import final_text
from fedsim.report.metric import LOSS, Metric
from fedsim.report.names import data_name, format_values, join, scenario_name, threat_name
from fedsim.report.results import Results
from fedsim.report.rows import LAM, lam_label, ordered_rows, row_names
from fedsim.report.settings import Scenario, Setting, Threat, data_sets, scenarios

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIN_VALUES = 3  # that make a figure
LOG_FROM = 20.0  # largest over smallest value from which an axis is logarithmic
LOG_LOSS_FROM = 3.0  # the same of the loss over that of the initial models
FRACTION = "corruption.fraction"
FILE_NAMES = {FRACTION: "fraction", LAM: "lam"}  # others are whole: "client-learning_rate", say


class Line(NamedTuple):
    """A line of a panel. Shapes: X points."""

    panel: str  # the title
    setting: Setting  # the first one
    row: str  # the name in the legend
    x: np.ndarray  # [X]
    y: np.ndarray  # [X, 3] mean, lowest and highest split or seed
    marker: str = ""


def panel_title(scenario: Scenario, settings: Sequence[Setting]) -> str:
    """The scenario, preceded by the data set if `settings` are of several."""
    return _title(scenario.data, scenario_name(scenario), settings)


def _title(data: str, name: str, settings: Sequence[Setting]) -> str:
    return f"{data_name(data)}: {name}" if len(data_sets(settings)) > 1 else name


def plot_over_rounds(results: Results, settings: Sequence[Setting], metric: Metric) -> "Figure":
    """A metric of `settings` over rounds."""
    names = row_names(results.settings)
    of_settings = compare.over_rounds(results.table, metric).partition_by("setting", as_dict=True)
    lines = []
    for title, of_panel in _by_scenario(settings).items():
        for setting in of_panel:
            rows = of_settings[setting.position,]
            y = rows.select("mean", "low", "high").to_numpy().astype(float)
            lines.append(Line(title, setting, names[setting], rows["round"].to_numpy(), y))
    in_nats = metric == LOSS and not any(results.metric(setting) == LOSS for setting in settings)
    figure = _plot(results, lines, metric.label + " (nats)" * in_nats, lambda panel, _: style.over_rounds(panel))
    if metric == LOSS and _rises(lines):
        for panel in figure.axes:
            panel.set_yscale("log")
    return figure


def _rises(lines: Sequence[Line]) -> bool:
    """Whether losses are far above those of the initial models."""
    highest = lambda every: max((float(y[np.isfinite(y)].max(initial=0)) for y in every), default=0.0)
    return highest(line.y for line in lines) > LOG_LOSS_FROM * highest(line.y[:1] for line in lines)


def _plot(
    results: Results, lines: Sequence[Line], label: str, finish_x: Callable[["Axes", Sequence[Line]], None]
) -> "Figure":
    """A panel for each title of `lines`; `finish_x` labels its axis."""
    rows = list(ordered_rows((line.setting, line.row) for line in lines))
    shown = rows[: style.MAX_LINES]
    of_rows = {line.row: line.setting for line in lines}
    ascending = sorted(shown, key=lambda row: _numbers(of_rows[row]))  # so that shades have their order
    looks = dict(zip(ascending, style.looks([of_rows[row].aggregator for row in ascending]), strict=True))
    panels = [(title, list(of_panel)) for title, of_panel in groupby(lines, key=lambda line: line.panel)]
    figure, axes = style.panels(min(len(panels), style.MAX_PANELS))
    handles: dict[str, Any] = {}
    for panel, (title, of_panel) in zip(axes, panels, strict=False):
        for line in sorted((line for line in of_panel if line.row in looks), key=lambda line: shown.index(line.row)):
            look = looks[line.row] | ({"marker": line.marker} if line.marker else {})
            panel.fill_between(line.x, line.y[:, 1], line.y[:, 2], color=look["color"], **style.BAND)
            handles[line.row] = panel.plot(line.x, line.y[:, 0], **look)[0]
        panel.set_title(style.literal(title))
        finish_x(panel, of_panel)
    cuts = (style.cut(len(axes), len(panels), "panels"), style.cut(len(shown), len(rows), "rows"))
    handles = {row: handles[row] for row in rows if row in handles}
    return style.finish(figure, axes, label, handles, (*cuts, _band(lines)))


def _numbers(setting: Setting) -> list[float]:
    """Of a setting's lambda and swept values, 0 for those that are no numbers."""
    values = (setting.lam, *(value for _, value in setting.row_values))
    return [float(value) if isinstance(value, int | float) else 0.0 for value in values]


def _band(lines: Sequence[Line]) -> str:
    with_band = [line.setting for line in lines if (line.y[:, 2] > line.y[:, 1]).any()]
    units = dict.fromkeys("split" if len(setting.splits) > 1 else "seed" for setting in with_band)
    return f"bands: lowest to highest {' or '.join(units)}" if units else ""


def plot_over_numbers(results: Results, metric: Metric) -> dict[str, "Figure"]:
    """The final metric over each number that takes three or more values, by name, such as "accuracy_over_lam"."""
    settings = results.with_metric(metric)
    figures = {}
    for key in dict.fromkeys([*FILE_NAMES, *(key for setting in settings for key, _ in setting.swept_values)]):
        names = row_names(settings, without=(key,))
        panels = _by_threat(settings, names) if key == FRACTION else _by_scenario(settings, key)
        lines = [
            Line(title, of_row[0], row, *_points(results, metric, group, of_row, key))
            for title, group in panels.items()
            if len(numbers(group, key)) >= MIN_VALUES
            for row in dict.fromkeys(names[setting] for setting in group)
            for of_row in [[setting for setting in group if names[setting] == row]]
        ]
        if lines:
            label = f"{metric.label}\n{final_text(settings, results.final)}"
            name = f"{metric.name}_over_{FILE_NAMES.get(key, key.replace('.', '-'))}"
            finish_x = lambda panel, of_panel, key=key: _finish_x(panel, of_panel, key, settings)
            figures[name] = _plot(results, lines, label, finish_x)
    return figures


def _points(
    results: Results, metric: Metric, group: Sequence[Setting], of_row: Sequence[Setting], key: str
) -> tuple[np.ndarray, np.ndarray, str]:
    """A rule's points; for a rule to which `key` does not apply, the same value everywhere."""
    point = lambda setting: [results.number(setting, metric)[name] for name in ("mean", "low", "high")]
    points = {number: point(setting) for setting in of_row if (number := number_of(setting, key)) is not None}
    marker = "o" if points else ""
    points = points or dict.fromkeys(numbers(group, key), point(of_row[0]))
    scale = 100 if key == FRACTION else 1
    return scale * np.asarray(sorted(points)), np.asarray([points[x] for x in sorted(points)], float), marker


def numbers(settings: Iterable[Setting], key: str) -> list[float]:
    """The different numbers that `key` has in the settings, ascending."""
    return sorted({number for setting in settings if (number := number_of(setting, key)) is not None})


def number_of(setting: Setting, key: str) -> float | None:
    """The number that `key` has in a setting; None if it has none, or does not apply."""
    value = {FRACTION: setting.fraction, LAM: setting.lam, **dict(setting.swept_values)}.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _by_scenario(settings: Sequence[Setting], key: str = "") -> dict[str, list[Setting]]:
    """The settings of each scenario by its title; `key` is no part of a scenario."""
    panels: dict[Scenario, list[Setting]] = {scenario.without(key): [] for scenario in scenarios(settings)}
    for setting in settings:
        panels[setting.scenario.without(key)].append(setting)
    return {panel_title(panel, settings): of_panel for panel, of_panel in panels.items()}


def _by_threat(settings: Sequence[Setting], names: dict[Setting, str]) -> dict[str, list[Setting]]:
    """The settings of each threat by its title, with those of the same rows without corrupted clients."""
    panels = {}
    for data in data_sets(settings):
        of_data = [setting for setting in settings if setting.data == data]
        places = dict.fromkeys((s.scenario.threat, s.scenario.data_values) for s in of_data if s.fraction > 0)
        for threat, values in places:
            with_values = [setting for setting in of_data if setting.scenario.data_values == values]
            rows = {names[s] for s in with_values if s.scenario.threat == threat and s.fraction > 0}
            title = _title(data, join(threat_name(*threat), format_values(values)), settings)
            panels[title] = [s for s in with_values if names[s] in rows and _is_under(threat, s)]
    return panels


def _is_under(threat: Threat, setting: Setting) -> bool:
    """Whether a setting is under the threat; without corrupted clients, under its attack by clients of their own."""
    if setting.fraction > 0:
        return setting.scenario.threat == threat
    is_same_attack = threat.attack_fraction is None or setting.attack == threat.attack
    is_same_threat = setting.scenario.threat.values in ((), threat.values)
    return setting.attack_fraction == threat.attack_fraction and is_same_attack and is_same_threat


def _finish_x(panel: "Axes", lines: Sequence[Line], key: str, settings: Sequence[Setting]) -> None:
    label = {FRACTION: "Corrupted clients (%)", LAM: lam_label(settings)}.get(key, key)
    scale_x(panel, sorted({x for line in lines for x in line.x.tolist()}), label, 0 if key == LAM else LOG_FROM)


def scale_x(panel: "Axes", x: Sequence[float], label: str, log_from: float = LOG_FROM) -> None:
    """Labels the axis of a swept number; logarithmic if the last of the ascending `x` is `log_from` times the first."""
    panel.set_xlabel(label)
    if x[0] > 0 and x[-1] / x[0] >= log_from:
        panel.set_xscale("log")
