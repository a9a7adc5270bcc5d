"""Figures of lines: a panel a scenario, a line a rule; bands from the lowest to the highest split or seed."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from fedsim.report import style
from fedsim.report.names import data_name, scenario_name
from fedsim.report.rows import families, ordered_rows
from fedsim.report.settings import DataScenario, Setting, data_scenarios, data_sets

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def panel_title(data_scenario: DataScenario, settings: Sequence[Setting]) -> str:
    """The scenario, preceded by the data set if `settings` are of several."""
    scenario = scenario_name(data_scenario.scenario)
    return f"{data_name(data_scenario.data)}: {scenario}" if len(data_sets(settings)) > 1 else scenario


def by_panel_title(
    settings: Sequence[Setting], all_settings: Sequence[Setting], without: str = ""
) -> dict[str, list[Setting]]:
    """The settings of each scenario by its title among `all_settings`; the key `without` is no part of a scenario."""
    panels = dict.fromkeys(data_scenario.without(without) for data_scenario in data_scenarios(settings))
    return {
        panel_title(panel, all_settings): [s for s in settings if s.data_scenario.without(without) == panel]
        for panel in panels
    }


def line_figure(
    panels: Mapping[str, Sequence[Setting]],
    names: dict[Setting, str],
    label: str,
    draw: Callable[["Axes", list[Setting], Sequence[Setting], dict[str, Any]], Any],
    finish_x: Callable[["Axes", Sequence[Setting]], None],
) -> "Figure":
    """A panel for each of `panels` by title, and in it a line for each row of `names`, which all have their own look.

    `draw` gets the settings of a row and all of the panel, and returns the legend's handle; `finish_x` labels the axis.
    """
    rows = ordered_rows(names.items())
    first = {name: setting for setting, name in reversed(names.items())}
    looks = style.looks(families([first[row] for row in rows[: style.MAX_LINES]]))
    figure, axes = style.panels(min(len(panels), style.MAX_PANELS))
    handles: dict[str, Any] = {}
    for panel, (title, settings) in zip(axes, islice(panels.items(), style.MAX_PANELS), strict=True):
        for position, row in enumerate(rows[: style.MAX_LINES]):
            if row_settings := [setting for setting in settings if names[setting] == row]:
                handles[row] = draw(panel, row_settings, settings, looks[position])
        panel.set_title(title)
        finish_x(panel, settings)
    handles = {row: handles[row] for row in rows if row in handles}
    cuts = (style.cut(len(axes), len(panels), "panels"), style.cut(style.MAX_LINES, len(rows), "rows"))
    return style.finish(figure, axes, label, handles, style.note(cuts))
