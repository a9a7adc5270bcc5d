"""The critical-difference plot of ranks (see `ranks`)."""

from typing import TYPE_CHECKING

import numpy as np

from fedsim.report import style
from fedsim.report.ranks import Ranks
from fedsim.report.statistics import CONFIDENCE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def rank_groups(mean: np.ndarray, difference: float) -> list[tuple[int, int]]:
    """First and last, in ascending `mean` [R], of the largest groups whose ranks differ by `difference` at most."""
    ends = [int(np.searchsorted(mean, start + difference, side="right")) - 1 for start in mean]
    return [(i, end) for i, end in enumerate(ends) if end > i and (i == 0 or ends[i - 1] < end)]


def plot_ranks(ranks: Ranks) -> "Figure":
    """Mean ranks, the best on top; bars join rules whose difference is not significant."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    order = np.argsort(ranks.mean, kind="stable")
    mean, number = ranks.mean[order], len(ranks.rows)
    figure = Figure(figsize=(5.5, 1.3 + 0.2 * number))
    panel = figure.subplots()
    for position, (first, last) in enumerate(rank_groups(mean, ranks.critical_difference)):
        x = mean[first] - 0.04 * (1 + position % 2) * (mean[-1] - mean[0])
        panel.plot([x, x], [first, last], color="0.4", linewidth=3, solid_capstyle="butt")
    panel.plot(mean, range(number), "o", color=style.COLORS[0])
    for position, rank in enumerate(mean):
        panel.annotate(f"{rank:.2f}", (rank, position), (5, 0), textcoords="offset points", va="center", fontsize=7)
    panel.set_yticks(range(number), [ranks.rows[i] for i in order])
    panel.invert_yaxis()
    panel.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    half = ranks.critical_difference / 2
    panel.errorbar(mean[0] + half, -1, xerr=half, color="black", capsize=3)
    level = f"{100 * (1 - CONFIDENCE):.0f} %"
    panel.set_xlabel(
        f"Mean rank over {len(ranks.scenario_ranks)} scenarios (1: best)\n"
        f"Above: critical difference {ranks.critical_difference:.2f} (Nemenyi, {level})\n"
        f"Friedman: p = {ranks.friedman[1]:.2g}"
    )
    return figure
