"""Means over splits or seeds, and their intervals.

The unit of chance is the split: a test split with its partition (`data.seed`). Runs of several splits are first
averaged over the seeds of each split; deviations and intervals are over these means. With one split the seeds are the
units.
"""

from collections.abc import Sequence

import numpy as np

CONFIDENCE = 0.95
MIN_UNITS = 3  # the interval of two is about 13 times their deviation
ROUNDING = 1e-9  # spread that rounding leaves between equal numbers


def split_means(values: np.ndarray, splits: Sequence[int]) -> np.ndarray:
    """The means [P, ...] over the runs of each split, of the finite numbers among `values` [S, ...]; NaN of none.

    `splits` [S] has the split of each run. With one split, `values` themselves.

    >>> split_means(np.asarray([0.2, 0.4, 0.9]), [0, 0, 7]).tolist()
    [0.30000000000000004, 0.9]
    """
    return values if len(set(splits)) == 1 else means_by_split(values, splits)


def means_by_split(values: np.ndarray, splits: Sequence[int]) -> np.ndarray:
    """The means [P, ...] as `split_means` computes them, also of one split."""
    means = []
    for split in dict.fromkeys(splits):
        of_split = values[np.asarray(splits) == split]
        finite = np.isfinite(of_split)
        total, number = np.where(finite, of_split, 0.0).sum(axis=0), finite.sum(axis=0)
        means.append(np.divide(total, number, out=np.full(np.shape(total), np.nan), where=number > 0))
    return np.asarray(means)


def mean(values: np.ndarray) -> float | None:
    """Mean of the finite numbers among `values` [P]; None if there are none."""
    numbers = values[np.isfinite(values)]
    return float(numbers.mean()) if len(numbers) else None


def std(values: np.ndarray) -> float | None:
    """Standard deviation (ddof 1) of the finite numbers among `values` [P]; None of fewer than two."""
    numbers = values[np.isfinite(values)]
    return float(np.std(numbers, ddof=1)) if len(numbers) > 1 else None


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
