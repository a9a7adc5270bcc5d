"""Means over seeds and their intervals."""

import numpy as np

CONFIDENCE = 0.95


def mean(values: np.ndarray) -> float | None:
    """Mean of the finite numbers among `values` [S]; None if there are none."""
    numbers = values[np.isfinite(values)]
    return float(numbers.mean()) if len(numbers) else None


def std(values: np.ndarray) -> float | None:
    """Standard deviation (ddof 1) of the finite numbers among `values` [S]; None of fewer than two."""
    numbers = values[np.isfinite(values)]
    return float(np.std(numbers, ddof=1)) if len(numbers) > 1 else None


def half_width(values: np.ndarray) -> float | None:
    """Half the width of Student's t-interval of the mean of `values` [S]; None of fewer than two."""
    from scipy.stats import sem, t  # type: ignore[import-untyped]

    return float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * sem(values)) if len(values) > 1 else None
