"""Coordinate-wise rules: at each parameter, the mean of those clients' values that have certain ranks.

Clients count equally, as in the papers. The update is no weighted mean of the clients' updates, so the weights are a
diagnostic: in proportion to the share of parameters at which a client's value is within the range of the kept ones,
measured on at most `MAX_SAMPLES` evenly spaced parameters.

With weights from another rule (`Method.weighting`), the clients' values at a parameter, in ascending order, lie side by
side on the interval from 0 to 1, each as wide as the client's weight. The trimmed mean is the mean over the part from b
to 1 - b, and the median the value at 1/2. With equal weights and b = f / K, these are the papers' rules.
"""

from collections.abc import Callable

import jax.numpy as jnp

from fedsim.aggregators.weighting import example_weights, normalize, stateless
from fedsim.core.contracts import Aggregator
from fedsim.core.sorting import ASCENDING, NEAREST, CenteredColumns, Order, keys_at_ranks, rank_mean, weights_below
from fedsim.core.trees import nonzero, ravel_updates, unravel_update
from fedsim.core.types import Aggregate, Array, CohortReport, PyTree

MAX_SAMPLES = 4096
ROUNDING_ERROR = 1e-6  # of a sum of weights
MEDIAN_FROM = 0.499  # share of the weights that is trimmed at each end: what is left is little more than the middle

Ranks = tuple[Array, Array]
"""The first and the last rank [] that is kept; 0 is the first."""


def from_ranks(
    compute_ranks: Callable[[CohortReport], Ranks], compute_trimmed: Callable[[CohortReport], Array]
) -> Aggregator:
    """The aggregator that averages the values of the same ranks at all parameters; rank 0 is the lowest value.

    If another rule gave weights, it trims the share `compute_trimmed(report)` [] of them instead (`trim_by_weight`).
    """

    def aggregate(report: CohortReport) -> Aggregate:
        if report.weights is not None:
            return trim_by_weight(report, compute_trimmed(report))
        return Aggregate(*_mean_and_weights(report, _columns(report, report.valid), compute_ranks(report), ASCENDING))

    return stateless(aggregate)


def trim_by_weight(report: CohortReport, trimmed: Array) -> Aggregate:
    """At each parameter, the mean without the share `trimmed` [] of the weights at each end; the median from 0.499 on.

    The weights are those of `example_weights`. Where two clients meet at 1/2, the median is the mean of their values. A
    client's weight in the result is its mean share over the parameters.
    """
    rows, weights = ravel_updates(report.updates), example_weights(report.valid, report)
    lower = weights_below(rows, weights)  # [K, d], where each client's part begins
    upper = lower + weights[:, None]
    kept = jnp.minimum(upper, 1 - trimmed) - jnp.maximum(lower, trimmed)
    kept = jnp.where(kept > ROUNDING_ERROR, kept, 0.0)  # a trimmed value may be huge
    meets_middle = (lower < 0.5 + ROUNDING_ERROR) & (upper > 0.5 - ROUNDING_ERROR) & (weights > 0)[:, None]
    kept = jnp.where(trimmed < MEDIAN_FROM, kept, meets_middle)
    total = jnp.sum(kept, axis=0, keepdims=True)
    shares = kept / nonzero(total)
    return Aggregate(unravel_update(jnp.sum(shares * rows, axis=0), report.updates), jnp.mean(shares, axis=1))


def median_ranks(num_valid: Array) -> Ranks:
    """The ranks of the median of `num_valid` [] values: the middle one, or the middle two."""
    return (num_valid - 1) // 2, num_valid // 2


def mean_around_median(
    report: CohortReport, mask: Array, num_kept: Array, center: Array | None = None
) -> tuple[PyTree, Array]:
    """At each parameter, the mean of the `num_kept` values nearest to the median of the clients in `mask` [K].

    Returns the update and weights [K]. Of two values with the same distance, the lower one is kept. A `center` [d]
    takes the place of the median.
    """
    columns = _columns(report, mask)
    if center is None:
        center = rank_mean(columns, _rank_weights(median_ranks(jnp.sum(mask)), mask))
    kept = jnp.zeros_like(num_kept), num_kept - 1
    return _mean_and_weights(report, columns._replace(center=center), kept, NEAREST)


def _columns(report: CohortReport, mask: Array) -> CenteredColumns:
    rows = ravel_updates(report.updates)
    return CenteredColumns(rows, mask, jnp.zeros(rows.shape[1], jnp.float32))


def _rank_weights(kept: Ranks, mask: Array) -> Array:
    ranks = jnp.arange(mask.size)
    return normalize(((ranks >= kept[0]) & (ranks <= kept[1]) & (ranks < jnp.sum(mask))).astype(jnp.float32))


def _mean_and_weights(
    report: CohortReport, columns: CenteredColumns, kept: Ranks, order: Order
) -> tuple[PyTree, Array]:
    mask = columns.mask
    mean = columns.center + rank_mean(columns, _rank_weights(kept, mask), order)
    update = unravel_update(jnp.where(jnp.any(mask), mean, 0.0), report.updates)

    step = -(-columns.center.size // MAX_SAMPLES)
    sample = columns._replace(values=columns.values[:, ::step], center=columns.center[::step])
    first, last = keys_at_ranks(sample, kept, order)
    keys = sample.keys(order)
    is_kept = (keys >= first[None]) & (keys <= last[None]) & mask[:, None]
    return update, normalize(jnp.mean(is_kept, axis=1))
