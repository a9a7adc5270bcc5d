"""Coordinate-wise rules: at each parameter, the mean of those clients' values that have certain ranks.

Clients count equally, as in the papers. The update is no weighted mean of the clients' updates, so the weights are a
diagnostic: in proportion to the share of parameters at which a client's value is within the range of the kept ones,
measured on at most `MAX_SAMPLES` evenly spaced parameters.
"""

from collections.abc import Callable

import jax.numpy as jnp

from fedsim.aggregators.weighting import normalize, stateless
from fedsim.core.contracts import Aggregator
from fedsim.core.sorting import ASCENDING, NEAREST, Columns, Order, keys_at_ranks, rank_mean
from fedsim.core.trees import ravel_updates, unravel_update
from fedsim.core.types import Aggregate, Array, CohortReport, PyTree

MAX_SAMPLES = 4096

Ranks = tuple[Array, Array]
"""The first and the last rank [] that is kept; 0 is the first."""


def from_ranks(compute_ranks: Callable[[CohortReport], Ranks]) -> Aggregator:
    """The aggregator that averages the values of the same ranks at all parameters; rank 0 is the lowest value."""

    def aggregate(report: CohortReport, key: Array) -> Aggregate:
        del key
        return Aggregate(*_mean_and_weights(report, _columns(report, report.valid), compute_ranks(report), ASCENDING))

    return stateless(aggregate)


def median_ranks(num_valid: Array) -> Ranks:
    """The ranks of the median of `num_valid` [] values: the middle one, or the middle two."""
    return (num_valid - 1) // 2, num_valid // 2


def mean_around_median(report: CohortReport, mask: Array, num_kept: Array) -> tuple[PyTree, Array]:
    """At each parameter, the mean of the `num_kept` values nearest to the median of the clients in `mask` [K].

    Returns the update and weights [K]. Of two values with the same distance, the lower one is kept.
    """
    columns = _columns(report, mask)
    median = rank_mean(columns, _rank_weights(median_ranks(jnp.sum(mask)), mask))
    kept = jnp.zeros_like(num_kept), num_kept - 1
    return _mean_and_weights(report, columns._replace(center=median), kept, NEAREST)


def _columns(report: CohortReport, mask: Array) -> Columns:
    rows = ravel_updates(report.updates)
    return Columns(rows, mask, jnp.zeros(rows.shape[1]))


def _rank_weights(kept: Ranks, mask: Array) -> Array:
    ranks = jnp.arange(mask.size)
    return normalize(((ranks >= kept[0]) & (ranks <= kept[1]) & (ranks < jnp.sum(mask))).astype(jnp.float32))


def _mean_and_weights(report: CohortReport, columns: Columns, kept: Ranks, order: Order) -> tuple[PyTree, Array]:
    mask = columns.mask
    mean = columns.center + rank_mean(columns, _rank_weights(kept, mask), order)
    update = unravel_update(jnp.where(jnp.any(mask), mean, 0.0), report.updates)

    step = -(-columns.center.size // MAX_SAMPLES)
    sample = columns._replace(values=columns.values[:, ::step], center=columns.center[::step])
    first, last = keys_at_ranks(sample, kept, order)
    keys = sample.keys(order)
    is_kept = (keys >= first[None]) & (keys <= last[None]) & mask[:, None]
    return update, normalize(jnp.mean(is_kept, axis=1))
