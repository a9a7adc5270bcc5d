"""What the paper's figures share."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim.report import style


def with_band(panel: Any, x: np.ndarray, values: Sequence[np.ndarray] | np.ndarray, look: dict[str, Any]) -> Any:
    """The mean over seeds over `x` [X], with a band from the least to the greatest; `values` X arrays [S]. The line."""
    finite = [np.ma.masked_invalid(of_seeds) for of_seeds in values]
    low, high = (np.ma.array([edge(of_seeds) for of_seeds in finite]) for edge in (np.ma.min, np.ma.max))
    panel.fill_between(x, low, high, color=look["color"], **style.BAND)
    return panel.plot(x, np.ma.array([of_seeds.mean() for of_seeds in finite]), **look)[0]
