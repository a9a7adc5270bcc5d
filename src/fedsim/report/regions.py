"""Which rule is best where: regions over a swept number and the share of corrupted clients."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedsim.report import style
from fedsim.report.accuracy import final_text
from fedsim.report.metric import Metric, with_metric
from fedsim.report.names import format_values, percent, threat_name
from fedsim.report.paired import difference
from fedsim.report.results import Results
from fedsim.report.rows import ordered_rows, row_names
from fedsim.report.settings import Setting
from fedsim.report.sweep_plots import Plane, find_planes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OPACITY = 0.4  # if the best rule's difference to another one is not significant
MAX_RULES = len(style.COLORS)


class Best(NamedTuple):
    """The setting with the best final mean at a place of the plane."""

    setting: Setting
    is_significant: bool
    """Whether its difference to each other rule is."""


def plot_regions(results: Results, metric: Metric) -> dict[str, "Figure"]:
    """By name, such as "accuracy_regions_dirichlet-alpha": a panel for each threat.

    In each place the rule with the best final mean, and that mean; pale if the interval of the difference to another
    rule, seed by seed, includes 0. Only if there are several rules, and at most as many best ones as colors.
    """
    figures = {}
    for plane in find_planes(with_metric(metric, results.settings)):
        figure = _plot(plane, metric)
        if figure is not None:
            figures[f"{metric.name}_regions_{plane.name}"] = figure
    return figures


def _plot(plane: Plane, metric: Metric) -> "Figure | None":
    from matplotlib.patches import Patch

    by_threat: dict[str, list[Setting]] = {}
    for setting in plane.settings:
        if setting.fraction > 0:
            by_threat.setdefault(_threat_title(setting, plane.key), []).append(setting)
    names = row_names(plane.settings, without={key for s in plane.settings for key, _ in s.shared_values})
    fractions = [fraction for fraction in plane.fractions if fraction > 0]
    tables = {
        title: [[_find_best(plane.at(settings, value, f), metric) for f in fractions] for value in plane.values]
        for title, settings in list(by_threat.items())[: style.MAX_PANELS]
    }
    best = dict.fromkeys(place.setting for table in tables.values() for line in table for place in line if place)
    rules = ordered_rows((setting, names[setting]) for setting in best)
    if len(set(names.values())) < 2 or not 0 < len(rules) <= MAX_RULES:
        return None
    colors = dict(zip(rules, style.COLORS, strict=False))
    figure, axes = style.panels(len(tables))
    for panel, (title, table) in zip(axes, tables.items(), strict=True):
        panel.set_title(title)
        panel.set_xticks(range(len(fractions)), list(map(percent, fractions)))
        panel.set_yticks(range(len(plane.values)), [f"{value:g}" for value in plane.values])
        panel.set_xlabel("Corrupted clients")
        _draw(panel, table, {setting: colors[names[setting]] for setting in best}, metric)
    shown = f"{metric.label} {final_text(plane.settings)} of the best rule; pale: the difference is not significant"
    cut = style.cut(len(tables), len(by_threat), "panels")
    handles = {rule: Patch(color=color) for rule, color in colors.items()}
    return style.finish(figure, axes, plane.key, handles, style.note([shown, cut]))


def _threat_title(setting: Setting, key: str) -> str:
    """The threat, with the swept values other than `key` that other rules have as well."""
    scenario = setting.data_scenario.without(key).scenario
    values = format_values((*scenario.data_values, *setting.shared_values))
    return ", ".join(filter(None, (threat_name(*scenario.threat), values)))


def _find_best(settings: Sequence[Setting], metric: Metric) -> Best | None:
    """The best of the settings; None if there is none with a finite mean."""
    scores = {setting: score for setting in settings if math.isfinite(score := metric.score(setting))}
    if not scores:
        return None
    best = max(scores, key=lambda setting: scores[setting])
    pairs = [difference(best, other, metric) for other in scores if other is not best]
    return Best(best, bool(pairs) and all(pair is not None and pair.is_significant for pair in pairs))


def _draw(panel: "Axes", table: list[list[Best | None]], colors: dict[Setting, str], metric: Metric) -> None:
    from matplotlib.colors import to_rgba

    opacity = lambda best: 1.0 if best.is_significant else OPACITY
    color = lambda best: to_rgba(colors[best.setting], opacity(best)) if best else (1.0, 1.0, 1.0, 0.0)
    panel.imshow(np.asarray([[color(best) for best in line] for line in table]), aspect="auto")
    panel.grid(visible=False)
    panel.tick_params(length=0)
    digits = 1 if metric.higher_is_better else 2
    for row, line in enumerate(table):
        for column, best in enumerate(line):
            if best:
                text = f"{metric.final_mean(best.setting):.{digits}f}"
                ink = "white" if best.is_significant else "black"
                panel.text(column, row, text, ha="center", va="center", fontsize=7, color=ink)
