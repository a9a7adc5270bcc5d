"""All figures of run folders."""

from typing import TYPE_CHECKING

from polars import col

from fedsim.report import claims, style
from fedsim.report.heatmap import plot_planes, plot_threat_grids
from fedsim.report.lines import plot_over_numbers, plot_over_rounds
from fedsim.report.metric import ACCURACY, BACKDOOR, CORRUPTED_WEIGHT, LOSS
from fedsim.report.results import Results
from fedsim.report.weights import plot_client_weights, plot_weights_over_lam

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figures(results: Results) -> dict[str, "Figure"]:
    """Each figure for which the results have data, and those of claims, by name. Save them inside `style.context()`."""
    has_corrupted_weight = results.table.select((col(CORRUPTED_WEIGHT.name) > 0).any()).item()
    over_rounds = {
        ACCURACY: results.with_metric(ACCURACY),
        LOSS: results.settings,
        CORRUPTED_WEIGHT: [setting for setting in results.settings if setting.fraction > 0 and has_corrupted_weight],
        BACKDOOR: results.with_backdoor,
    }
    with style.context():
        shown = {m.name: plot_over_rounds(results, settings, m) for m, settings in over_rounds.items() if settings}
        if (weights := plot_client_weights(results)) is not None:
            shown["client_weights"] = weights
        for metric in (ACCURACY, LOSS):
            shown |= plot_over_numbers(results, metric)
            shown |= plot_planes(results, metric)
        shown |= plot_threat_grids(results)
        if (over_lam := plot_weights_over_lam(results)) is not None:
            shown["weights_over_lam"] = over_lam
        shown |= claims.figures(results)
        for remark in results.remarks:
            for figure in shown.values():
                style.remark(figure, remark)
    return shown
