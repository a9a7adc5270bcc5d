"""Figures over rounds: a panel a data set and scenario, a line a rule."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.report import style
from fedsim.report.line_plots import by_panel_title, line_figure
from fedsim.report.metric import LOSS, METRICS, Metric
from fedsim.report.rows import row_names
from fedsim.report.settings import Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOG_FROM = 3.0  # the loss gets a logarithmic axis if it rises above so many times that of the initial model
CORRUPTED_WEIGHT = next(metric for metric in METRICS if metric.name == "corrupted_weight")


def plot_loss(settings: Sequence[Setting], in_nats: bool) -> "Figure":
    """Test loss over rounds; a regression's is not in nats."""
    figure = plot_over_rounds(settings, LOSS, settings, "Test loss (nats)" if in_nats else "Test loss")
    finite = lambda loss: loss[np.isfinite(loss)]
    highest = np.max(np.concatenate([finite(setting.loss) for setting in settings]), initial=0)
    first = np.max(np.concatenate([finite(setting.loss[:, 0]) for setting in settings]), initial=0)
    if highest > LOG_FROM * first:
        for panel in figure.axes:
            panel.set_yscale("log")
    return figure


def plot_over_rounds(
    settings: Sequence[Setting], metric: Metric, all_settings: Sequence[Setting], label: str = ""
) -> "Figure":
    """A metric over rounds, for each of `settings`; rows, which decide how lines look, are those of `all_settings`."""

    def draw(panel: "Axes", row_settings: list[Setting], _: Sequence[Setting], look: dict[str, Any]) -> Any:
        for setting in row_settings:
            by_split = metric.scale * metric.recorded(setting.mean_by_split())
            handle = style.with_band(panel, setting.rounds, by_split.T, look)
        return handle

    panels = by_panel_title(settings, all_settings)
    names = row_names(all_settings)
    return line_figure(panels, names, label or metric.label, draw, lambda panel, _: style.over_rounds(panel))
