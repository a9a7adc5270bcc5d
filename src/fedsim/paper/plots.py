"""What the paper's figures share."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim.report import style
from fedsim.report.names import AGGREGATORS


def of_rule(rule: str) -> dict[str, Any]:
    """The line of a rule, the same whichever rules stand beside it."""
    return style.line(list(AGGREGATORS).index(rule))


def with_band(panel: Any, x: np.ndarray, values: Sequence[np.ndarray] | np.ndarray, look: dict[str, Any]) -> Any:
    """The mean over seeds over `x` [X], with a band from the least to the greatest; `values` X arrays [S]. The line."""
    finite = [of_seeds[np.isfinite(of_seeds)] for of_seeds in values]
    mean, low, high = np.asarray([(v.mean(), v.min(), v.max()) if len(v) else [np.nan] * 3 for v in finite]).T
    panel.fill_between(x, low, high, color=look["color"], **style.BAND)
    return panel.plot(x, mean, **look)[0]
