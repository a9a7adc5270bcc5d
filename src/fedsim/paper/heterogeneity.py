"""Data heterogeneity (Sec. 5.4, Fig. 4): ARFL's learning curves over Dirichlet partitions, 30 % of clients shuffled."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.paper.claims import Claim, Measurement, Statement, check_all
from fedsim.paper.figures import small_panel
from fedsim.paper.settings import by_seed, late_accuracies, paired_differences, settings_by_value
from fedsim.report import style
from fedsim.report.names import aggregator_name
from fedsim.report.results import Results
from fedsim.report.settings import Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def settings_by_alpha(results: Results) -> dict[float, Setting]:
    """ARFL's settings by the Dirichlet partition's alpha, in ascending order."""
    return settings_by_value(results, "dirichlet.alpha", {"server.aggregator": "arfl", "data.partition": "dirichlet"})


def fluctuation(setting: Setting) -> dict[int, float]:
    """Standard deviation, in points, of the steps between evaluations in the second half; by seed."""
    second_half = setting.rounds >= setting.rounds[-1] / 2
    steps = np.diff(100 * setting.accuracy[:, second_half], axis=1)
    return by_seed(setting, steps.std(axis=1)) if steps.shape[1] > 1 else {}


def claims(results: Results) -> list[Claim]:
    """With more heterogeneity, curves fluctuate more and end lower."""
    settings = settings_by_alpha(results)
    return check_all(STATEMENTS, settings if len(settings) > 1 else None)


def _accuracy_rises(settings: dict[float, Setting]) -> Measurement | None:
    return _compare_steps({alpha: late_accuracies(setting) for alpha, setting in settings.items()}, " %", 1)


def _fluctuation_falls(settings: dict[float, Setting]) -> Measurement | None:
    return _compare_steps({alpha: fluctuation(setting) for alpha, setting in settings.items()}, "", -1)


def _compare_steps(values: dict[float, dict[int, float]], unit: str, sign: int) -> Measurement | None:
    """Means over seeds; the margin is the smallest step from one alpha to the next, upwards (sign 1) or down (-1)."""
    steps = [paired_differences(larger, smaller) for smaller, larger in pairwise(values.values())]
    if any(step is None for step in steps):
        return None
    means = {alpha: np.mean(list(seeds.values())) for alpha, seeds in values.items()}
    text = ", ".join(f"α = {alpha:g}: {mean:.2f}{unit}" for alpha, mean in means.items())
    worst = min((sign * step for step in steps if step is not None), key=np.mean)
    return Measurement(text, worst, "points")


STATEMENTS = (
    Statement(
        "The larger α, the higher the final accuracy (mean of the last five evaluations)", "Fig. 4", _accuracy_rises
    ),
    Statement(
        "The larger α, the less the curve fluctuates (standard deviation of its steps in the second half)",
        "Fig. 4",
        _fluctuation_falls,
    ),
)


def figures(results: Results) -> dict[str, "Figure"]:
    """The paper's Fig. 4: a curve for each alpha; bands from the lowest to the highest seed."""
    settings = settings_by_alpha(results)
    if not settings:
        return {}
    figure, panel = small_panel()
    handles: dict[str, Any] = {}
    for position, (alpha, setting) in enumerate(settings.items()):
        line = style.with_band(panel, setting.rounds, 100 * setting.accuracy.T, style.line(position))
        handles[f"α = {alpha:g}"] = line
    style.over_rounds(panel)
    return {"heterogeneity": style.finish(figure, [panel], f"Test accuracy of {aggregator_name('arfl')} (%)", handles)}
