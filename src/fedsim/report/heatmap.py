"""Heat maps with their numbers: of rules under attacks, and of a swept number over the share of corrupted clients."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedsim.report import style
from fedsim.report.accuracy import final_text
from fedsim.report.lines import MIN_VALUES, number_of, numbers
from fedsim.report.metric import Metric
from fedsim.report.names import file_part, format_number, format_values, percent, threat_name
from fedsim.report.results import Results
from fedsim.report.rows import ordered_rows, row_names
from fedsim.report.settings import Setting, Threat, data_sets
from fedsim.report.worst import ThreatGrid, lacks_threats, threat_grids

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

MAX_DARK = 0.45  # of a color map's range: numbers on colors below it are white
SHARE = "Corrupted or malicious clients"
MAX_CHARACTERS = 5  # of a column's name that is written horizontally


def plot_threat_grids(results: Results) -> dict[str, "Figure"]:
    """By name: each rule under each attack, a panel a share; and under the worst of them, over shares."""
    figures = {}
    for grid in threat_grids(results):
        data = "" if len(data_sets(results.settings)) == 1 else f"_{grid.data}"
        suffix = file_part(data + "".join(f"_{key}={value}" for key, value in grid.data_values))
        figures[f"{grid.metric.name}_by_attack{suffix}"] = _plot_by_attack(grid)
        figures[f"{grid.metric.name}_worst_attack{suffix}"] = _plot_worst(grid)
    return figures


def _by_robustness(grid: ThreatGrid) -> list[str]:
    """The rows, the one with the best worst case at the largest share first."""
    means = lambda row: _means(grid, row, [(share, None) for share in reversed(grid.shares)])
    goodness = lambda row: [grid.metric.sign * mean if np.isfinite(mean) else -np.inf for mean in means(row)]
    return sorted(grid.rules, key=goodness, reverse=True)


def _means(grid: ThreatGrid, row: str, places: Iterable[tuple[float, Threat | None]]) -> list[float]:
    """The worst means of a row at each share, under a threat or any; NaN if it lacks threats that other rows have."""
    lacks = lambda share, threat: threat is None and grid.is_partial(row, share)
    mean = lambda place: grid.results.mean(grid.worst(row, *place), grid.metric)
    return [np.nan if lacks(*place) else mean(place) for place in places]


def _plot_by_attack(grid: ThreatGrid) -> "Figure":
    rows, clean = _by_robustness(grid), [share for share in grid.shares if not share]
    columns = [*("No attack" for _ in clean), *(threat_name(*threat) for threat in grid.threats), "Worst"]
    panels = {}
    for share in filter(None, grid.shares):
        places = [*((zero, None) for zero in clean), *((share, threat) for threat in (*grid.threats, None))]
        table = np.asarray([_means(grid, row, places) for row in rows])
        panels[f"{percent(share)} of the clients"] = table
    return draw_heat_maps(panels, (rows, columns), ("Rule", "Attack"), grid.metric, grid.when)


def _plot_worst(grid: ThreatGrid) -> "Figure":
    rows, columns = _by_robustness(grid), list(map(percent, grid.shares))
    table = np.asarray([_means(grid, row, [(share, None) for share in grid.shares]) for row in rows])
    panels = {f"Worst of {grid.most_threats} attacks": table}
    return draw_heat_maps(panels, (rows, columns), ("Rule", SHARE), grid.metric, grid.when)


def plot_planes(results: Results, metric: Metric) -> dict[str, "Figure"]:
    """By name, such as "accuracy_plane_dirichlet-alpha": a panel a rule, the worst of the threats at each place.

    The axes are a swept number of the data or a corruption, and the share of corrupted or malicious clients. Empty
    where a rule lacks threats that other rules have there.
    One for each number, data set and values of other data keys, if it and the share take three values each.
    """
    settings = results.with_metric(metric)
    groups: dict[tuple[str, str], list[Setting]] = {}
    for key in dict.fromkeys(key for setting in settings for key, _ in setting.values_of("data", "threat")):
        for setting in settings:
            if number_of(setting, key) is not None:
                others = format_values(setting.scenario.without(key).data_values)
                data = setting.data if len(data_sets(settings)) > 1 else ""
                name = "_".join(filter(None, (key.replace(".", "-"), data, others)))
                groups.setdefault((key, file_part(name)), []).append(setting)
    return {
        f"{metric.name}_plane_{name}": _plot_plane(results, metric, key, group)
        for (key, name), group in groups.items()
        if min(len(numbers(group, key)), len({setting.scenario.share for setting in group})) >= MIN_VALUES
    }


def _plot_plane(results: Results, metric: Metric, key: str, settings: Sequence[Setting]) -> "Figure":
    names = row_names(settings, without=(key,))
    rules = list(ordered_rows(names.items()))
    values, fractions = numbers(settings, key), sorted({s.scenario.share for s in settings})

    places: dict[tuple[str, float | None, float], list[Setting]] = {}
    for setting in settings:
        places.setdefault((names[setting], number_of(setting, key), setting.scenario.share), []).append(setting)

    def final(rule: str, value: float, fraction: float) -> float:
        of_rules = {other: places.get((other, value, fraction), []) for other in rules}
        if lacks_threats(rule, {other: {s.scenario.threat_kind for s in of_rules[other]} for other in rules}):
            return np.nan
        return results.mean(results.worst(of_rules[rule], metric), metric)

    panels = {
        rule: np.asarray([[final(rule, value, fraction) for fraction in fractions] for value in values])
        for rule in rules[: style.MAX_PANELS]
    }
    ticks = list(map(format_number, values)), list(map(percent, fractions))
    figure = draw_heat_maps(panels, ticks, (key, SHARE), metric, final_text(settings, results.final))
    if cut := style.cut(len(panels), len(rules), "panels"):
        style.remark(figure, cut)
    return figure


def draw_heat_maps(
    panels: dict[str, np.ndarray],
    ticks: tuple[Sequence[str], Sequence[str]],
    labels: tuple[str, str],
    metric: Metric,
    when: str,
) -> "Figure":
    """A heat map for each of `panels` by title, on one scale of colors; `ticks` and `labels` of rows and columns."""
    from matplotlib.figure import Figure

    rows, columns = ticks
    across = 2 if len(panels) > 1 else 1
    down = -(-len(panels) // across)
    longest = max(map(len, columns))
    is_long = longest > MAX_CHARACTERS
    width = max(0.33 * len(columns) + 0.4, 0.075 * max(map(len, panels)))  # beside each other, titles have room
    below = max(0.9, 0.06 * longest + 0.35) if is_long else 0.45  # the names of the columns
    label = f"{metric.label}\n{when}"
    shortest = 0.07 * max(map(len, label.splitlines())) + below - 0.05  # beside the colors, the label has room
    height = max(down * (0.2 * len(rows) + below) + 0.4, shortest)
    figure = Figure(figsize=(0.075 * max(map(len, rows)) + across * width + 1.1, height))
    axes = figure.subplots(down, across, sharey=True, squeeze=False).ravel().tolist()
    for panel in axes[len(panels) :]:
        panel.set_axis_off()
    finite = np.concatenate([table[np.isfinite(table)] for table in panels.values()])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    limits = low, high if high > low else low + 1.0
    for panel, (title, table) in zip(axes, panels.items(), strict=False):
        image = _draw(panel, table, limits, metric)
        panel.set_title(style.literal(title))
        panel.set_yticks(range(len(rows)), list(map(style.literal, rows)))
        panel.set_xticks(range(len(columns)), list(map(style.literal, columns)), rotation=90 if is_long else 0)
    figure.supylabel(labels[0], fontsize="medium")
    figure.supxlabel(labels[1], fontsize="medium")
    figure.colorbar(image, ax=axes, label=label, pad=0.01)
    return figure


def _draw(panel: "Axes", table: np.ndarray, limits: tuple[float, float], metric: Metric) -> "AxesImage":
    """Numbers on their colors; empty where there is none."""
    colors = "cividis" if metric.higher_is_better else "cividis_r"
    image = panel.imshow(np.ma.masked_invalid(table), vmin=limits[0], vmax=limits[1], cmap=colors, aspect="auto")
    panel.grid(visible=False)
    panel.tick_params(length=0)
    form = ".3g" if not metric.is_percentage else ".0f" if metric.higher_is_better else ".1f"
    for (row, column), value in np.ndenumerate(table):
        if np.isfinite(value):
            level = (value - limits[0]) / (limits[1] - limits[0])
            is_dark = level < MAX_DARK if metric.higher_is_better else level > 1 - MAX_DARK
            color = "white" if is_dark else "black"
            panel.text(column, row, f"{value:{form}}", color=color, fontsize=6, ha="center", va="center")
    return image
