"""All figures of run folders."""

from typing import TYPE_CHECKING

from fedsim.report import curves, style
from fedsim.report.cells import Results
from fedsim.report.heatmap import heat_maps, planes
from fedsim.report.measure import ACCURACY, LOSS, measured_by, with_backdoor
from fedsim.report.rank_figure import rank_figure
from fedsim.report.ranks import ranks
from fedsim.report.regions import regions
from fedsim.report.swept import final_over_numbers
from fedsim.report.weights import client_weights, weights_over_lam

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figures(results: Results) -> dict[str, "Figure"]:
    """Each picture that the results have something for, by name. Save them inside `style.context()`."""
    cells = results.cells
    with_accuracy = measured_by(ACCURACY, cells)
    with style.context():
        drawn = {"accuracy": curves.accuracy(with_accuracy)} if with_accuracy else {}
        drawn["loss"] = curves.loss(cells, in_nats=len(with_accuracy) == len(cells))
        if any((cell.corrupted_weight > 0).any() for cell in cells):
            drawn["corrupted_weight"] = curves.corrupted_weight(cells)
        if backdoors := with_backdoor(cells):
            drawn["backdoor_success"] = curves.backdoor_success(backdoors, cells)
        if (weights := client_weights(results)) is not None:
            drawn["client_weights"] = weights
        for measure in (ACCURACY, LOSS):
            drawn |= final_over_numbers(measured_by(measure, cells), measure)
            drawn |= planes(results, measure)
            drawn |= regions(results, measure)
        drawn |= heat_maps(results)
        if (over_lam := weights_over_lam(results)) is not None:
            drawn["weights_over_lam"] = over_lam
        if (found := ranks(results)) and len(found.rows) <= style.MAX_LINES:
            drawn["ranks"] = rank_figure(found)
        if results.chosen is not None:
            for figure in drawn.values():
                style.remark(figure, results.chosen.sentence)
    return drawn
