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
    settings = results.settings
    with_accuracy = results.with_metric(ACCURACY)
    with style.context():
        shown = {"accuracy": plot_over_rounds(results, with_accuracy, ACCURACY)} if with_accuracy else {}
        shown["loss"] = plot_over_rounds(results, settings, LOSS)
        if results.table.select((col(CORRUPTED_WEIGHT.name) > 0).any()).item():
            corrupted = [setting for setting in settings if setting.fraction > 0]
            shown["corrupted_weight"] = plot_over_rounds(results, corrupted, CORRUPTED_WEIGHT)
        if results.with_backdoor:
            shown["backdoor_success"] = plot_over_rounds(results, results.with_backdoor, BACKDOOR)
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
