"""Student's t-interval and test of a mean over splits or seeds, and Holm's correction."""

from collections.abc import Sequence

import numpy as np

CONFIDENCE = 0.95
MIN_UNITS = 3  # the interval of two is about 13 times their deviation
ROUNDING = 1e-9  # spread that rounding leaves between equal numbers


def holm(p_values: Sequence[float | None]) -> np.ndarray:
    """The p-values [C], corrected for the number of tests by Holm's step-down method; NaN for None, where is no test.

    S. Holm: "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6, 1979.
    """
    p = np.asarray(p_values, float)  # NaN for None
    corrected = np.full_like(p, np.nan)
    order = np.argsort(p)[: np.isfinite(p).sum()]  # NaN are last
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1.0)
    return corrected


def no_test(values: np.ndarray, unit: str = "values") -> str:
    """Why `values` [P] show neither an interval nor significance; empty if they do.

    Accuracies are multiples of one test example, so that a few differences are often equal. Their deviation of 0 is no
    certainty.
    """
    if len(values) < MIN_UNITS:
        return f"fewer than {MIN_UNITS} {unit}"
    return "all differences are equal" if np.ptp(values) <= ROUNDING * max(1.0, np.abs(values).max()) else ""


def half_width(values: np.ndarray) -> float | None:
    """Half the width of Student's t-interval of the mean of `values` [P]; None if there is `no_test`."""
    if no_test(values):
        return None
    from scipy.special import stdtrit  # type: ignore[import-untyped]  # scipy.stats takes 0.4 s to import

    return float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2) * _standard_error(values))


def p_value(values: np.ndarray) -> float | None:
    """Of Student's t-test that the mean of `values` [P] is 0; None if there is `no_test`."""
    if no_test(values):
        return None
    from scipy.special import stdtr

    return float(2 * stdtr(len(values) - 1, -abs(values.mean() / _standard_error(values))))


def _standard_error(values: np.ndarray) -> np.float64:
    return np.std(values, ddof=1) / np.sqrt(len(values))
