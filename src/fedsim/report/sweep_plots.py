"""The final test accuracy (or loss) over a swept number: a line a rule, with bands over splits or seeds."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsim.report import style
from fedsim.report.accuracy import final_text
from fedsim.report.line_plots import by_panel_title, line_figure
from fedsim.report.metric import Metric
from fedsim.report.names import data_name, file_part, format_values, threat_name
from fedsim.report.rows import LAM, lam_label, row_names
from fedsim.report.settings import Setting, Threat, data_sets

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIN_VALUES = 3  # that make a figure
LOG_FROM = 20.0  # largest over smallest value from which an axis is logarithmic
FRACTION = "corruption.fraction"
FILE_NAMES = {FRACTION: "fraction", LAM: "lam"}  # others are whole: "client-learning_rate", say
LABELS = {FRACTION: "Corrupted clients (share)"}


def plot_over_swept_numbers(settings: Sequence[Setting], metric: Metric) -> dict[str, "Figure"]:
    """A figure for each number that takes three or more values, by name, such as "accuracy_over_lam"."""
    figures = {}
    for key in dict.fromkeys([*FILE_NAMES, *_swept_keys(settings)]):
        by_title = _by_threat(settings) if key == FRACTION else by_panel_title(settings, settings, key)
        panels = {title: group for title, group in by_title.items() if len(numbers(group, key)) >= MIN_VALUES}
        if panels:
            names, label = row_names(settings, without=(key,)), f"{metric.label}\n{final_text(settings)}"
            draw = partial(_draw_line, key, metric)
            figure = line_figure(panels, names, label, draw, partial(_finish_x, key))
            figures[f"{metric.name}_over_{FILE_NAMES.get(key, key.replace('.', '-'))}"] = figure
    return figures


def _swept_keys(settings: Sequence[Setting]) -> list[str]:
    return list(dict.fromkeys(key for setting in settings for key, _ in setting.swept_values))


def numbers(settings: Sequence[Setting], key: str) -> list[float]:
    """The different numbers that `key` has in the settings, ascending."""
    return sorted({number for setting in settings if (number := number_of(setting, key)) is not None})


def number_of(setting: Setting, key: str) -> float | None:
    """The number that `key` has in a setting; None if it has none, or does not apply."""
    value = {FRACTION: setting.fraction, LAM: setting.lam, **dict(setting.swept_values)}.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _by_threat(settings: Sequence[Setting]) -> dict[str, list[Setting]]:
    """The settings of each threat by its title, with those of the same rows without corrupted clients."""
    panels = {}
    names = row_names(settings, without=(FRACTION,))
    for data in data_sets(settings):
        of_data = [setting for setting in settings if setting.data == data]
        places = dict.fromkeys((s.scenario.threat, s.scenario.data_values) for s in of_data if s.fraction > 0)
        for threat, values in places:
            with_values = [setting for setting in of_data if setting.scenario.data_values == values]
            rows = {names[s] for s in with_values if s.scenario.threat == threat and s.fraction > 0}
            name = ", ".join(filter(None, (threat_name(*threat), format_values(values))))
            title = f"{data_name(data)}: {name}" if len(data_sets(settings)) > 1 else name
            panels[title] = [s for s in with_values if names[s] in rows and _is_under(threat, s)]
    return panels


def _is_under(threat: Threat, setting: Setting) -> bool:
    """Whether a setting is under the threat; without corrupted clients, under its attack by clients of their own."""
    if setting.fraction > 0:
        return setting.scenario.threat == threat
    is_same_attack = threat.attack_fraction is None or setting.attack == threat.attack
    is_same_threat = setting.scenario.threat_values in ((), threat.values)
    return setting.attack_fraction == threat.attack_fraction and is_same_attack and is_same_threat


def _draw_line(
    key: str,
    metric: Metric,
    panel: "Axes",
    row_settings: list[Setting],
    settings: Sequence[Setting],
    look: dict[str, Any],
) -> Any:
    """A rule's line; for a rule to which `key` does not apply, the same value everywhere."""
    by_number = {number_of(setting, key): metric.final_by_split(setting) for setting in row_settings}
    finals = {number: final for number, final in by_number.items() if number is not None}
    look = look | ({"marker": "o"} if finals else {})
    finals = finals or dict.fromkeys(numbers(settings, key), metric.final_by_split(row_settings[0]))
    ascending = sorted(finals)
    return style.with_band(panel, np.asarray(ascending), [finals[x] for x in ascending], look)


def _finish_x(key: str, panel: "Axes", settings: Sequence[Setting]) -> None:
    label = lam_label(settings) if key == LAM else LABELS.get(key, key)
    scale_x(panel, numbers(settings, key), label, log_from=0 if key == LAM else LOG_FROM)


def scale_x(panel: "Axes", x: Sequence[float], label: str, log_from: float = LOG_FROM) -> None:
    """Labels the axis of a swept number; logarithmic if the last of the ascending `x` is `log_from` times the first."""
    panel.set_xlabel(label)
    if x[0] > 0 and x[-1] / x[0] >= log_from:
        panel.set_xscale("log")


class Plane(NamedTuple):
    """A swept number of the data or of a corruption, and the share of corrupted clients: the axes of a plane."""

    name: str
    """In the names of its figures, such as "dirichlet-alpha"; with that of the data set if there are several."""
    key: str
    settings: list[Setting]
    values: list[float]
    fractions: list[float]

    def at(self, settings: Sequence[Setting], value: float, fraction: float) -> list[Setting]:
        """Those of `settings` with this value and fraction."""
        return [s for s in settings if s.fraction == fraction and number_of(s, self.key) == value]


def find_planes(settings: Sequence[Setting]) -> list[Plane]:
    """One for each such number, data set and values of other data keys, if it and the share take three values each."""
    planes = []
    for key in dict.fromkeys(key for setting in settings for key, _ in setting.values_of("data", "threat")):
        groups: dict[str, list[Setting]] = {}
        for setting in settings:
            if number_of(setting, key) is not None:
                others = format_values(setting.data_scenario.without(key).scenario.data_values)
                data = setting.data if len(data_sets(settings)) > 1 else ""
                groups.setdefault("_".join(filter(None, (key.replace(".", "-"), data, others))), []).append(setting)
        for name, group in groups.items():
            fractions = sorted({setting.fraction for setting in group})
            plane = Plane(file_part(name), key, group, numbers(group, key), fractions)
            if min(len(plane.values), len(plane.fractions)) >= MIN_VALUES:
                planes.append(plane)
    return planes
