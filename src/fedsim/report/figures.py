"""All figures of run folders."""

from typing import TYPE_CHECKING

from fedsim.report import style
from fedsim.report.curves import CORRUPTED_WEIGHT, plot_loss, plot_over_rounds
from fedsim.report.heatmap import plot_planes, plot_threat_grids
from fedsim.report.metric import ACCURACY, BACKDOOR, LOSS, with_backdoor, with_metric
from fedsim.report.results import Results
from fedsim.report.sweep_plots import plot_over_swept_numbers
from fedsim.report.weights import plot_client_weights, plot_weights_over_lam

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figures(results: Results) -> dict[str, "Figure"]:
    """Each figure for which the results have data, by name. Save them inside `style.context()`."""
    settings = results.settings
    with_accuracy = with_metric(ACCURACY, settings)
    with style.context():
        shown = {"accuracy": plot_over_rounds(with_accuracy, ACCURACY, with_accuracy)} if with_accuracy else {}
        shown["loss"] = plot_loss(settings, in_nats=len(with_accuracy) == len(settings))
        if any((setting.corrupted_weight > 0).any() for setting in settings):
            corrupted = [setting for setting in settings if setting.fraction > 0]
            shown["corrupted_weight"] = plot_over_rounds(corrupted, CORRUPTED_WEIGHT, settings)
        if backdoors := with_backdoor(settings):
            shown["backdoor_success"] = plot_over_rounds(backdoors, BACKDOOR, settings)
        if (weights := plot_client_weights(results)) is not None:
            shown["client_weights"] = weights
        for metric in (ACCURACY, LOSS):
            shown |= plot_over_swept_numbers(with_metric(metric, settings), metric)
            shown |= plot_planes(results, metric)
        shown |= plot_threat_grids(results)
        if (over_lam := plot_weights_over_lam(results)) is not None:
            shown["weights_over_lam"] = over_lam
        for remark in results.remarks:
            for figure in shown.values():
                style.remark(figure, remark)
    return shown
