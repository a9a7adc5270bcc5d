"""All figures of run folders."""

from typing import TYPE_CHECKING

import numpy as np

from fedsim.report import curves, style
from fedsim.report.cells import Results
from fedsim.report.swept import final_accuracy
from fedsim.report.weights import client_weights, weights_over_lam

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figures(results: Results) -> dict[str, "Figure"]:
    """Each picture that the results have something for, by name. Save them inside `style.context()`."""
    with style.context():
        drawn = {"accuracy": curves.accuracy(results), "loss": curves.loss(results)}
        if any(np.nanmax(cell.corrupted_weight, initial=0) > 0 for cell in results.cells):
            drawn["corrupted_weight"] = curves.corrupted_weight(results)
        if (weights := client_weights(results)) is not None:
            drawn["client_weights"] = weights
        drawn |= final_accuracy(results)
        if (over_lam := weights_over_lam(results)) is not None:
            drawn["weights_over_lam"] = over_lam
    return drawn
