"""Coordinate-wise rules: at each parameter, the mean of those clients' values that have certain ranks.

Median and trimmed mean: Yin, Chen, Ramchandran, Bartlett: "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018, https://arxiv.org/abs/1803.01498. Mean around the median: Xie, Koyejo, Gupta:
"Generalized Byzantine-tolerant SGD", 2018, https://arxiv.org/abs/1802.10116.

Clients count equally, as in the papers. The update is no weighted mean of the clients' updates, so the weights are a
diagnostic: in proportion to the share of parameters at which a client's value is within the range of the kept ones,
measured on at most `MAX_SAMPLES` evenly spaced parameters.

With weights from another rule (`server.weighting`), the clients' values at a parameter, in ascending order, lie side by
side on the interval from 0 to 1, each as wide as the client's weight. The trimmed mean is the mean over the part from b
to 1 - b, and the median the value at 1/2. With equal weights and b = f / K, these are the papers' rules.
"""

from typing import Annotated

import jax.numpy as jnp

from fedsim.aggregators.weighting import MINORITY, assumed_byzantine, example_weights, normalize, stateless
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import Traced
from fedsim.core.sorting import ASCENDING, NEAREST, CenteredColumns, Order, keys_at_ranks, rank_mean, weights_below
from fedsim.core.trees import nonzero, ravel_updates, unravel_update
from fedsim.core.types import Aggregate, Array, CohortReport

MAX_SAMPLES = 4096
ROUNDING_ERROR = 1e-6  # of a sum of weights
MEDIAN_FROM = 0.499  # share of the weights that is trimmed at each end: what is left is little more than the middle

Ranks = tuple[Array, Array]
"""The first and the last rank [] that is kept; 0 is the first."""


def median() -> Aggregator:
    """The median of the clients' values at each parameter; for an even number of clients, the mean of the middle two.

    Clients count equally; the weights are a diagnostic (`fedsim.aggregators.coordinatewise`).

    >>> import fedsim
    >>> fedsim.aggregators.apply(fedsim.aggregators.median(), [[1.0, 2.0], [2.0, 9.0], [99.0, 1.0]]).update
    Array([2., 2.], dtype=float32)
    """

    def aggregate(report: CohortReport) -> Aggregate:
        if report.weights is not None:
            return trim_by_weight(report, jnp.float32(0.5))
        return _mean_of_ranks(_columns(report, report.valid), _median_ranks(jnp.sum(report.valid)), ASCENDING, report)

    return stateless(aggregate)


def trimmed_mean(
    *,
    num_byzantine: Annotated[
        Array | int | None, Traced(ge=0), MINORITY, "f, values trimmed at each end; default: (K - 3) // 2"
    ] = None,
) -> Aggregator:
    """The mean, at each parameter, of the clients' values without the f lowest and the f highest.

    f = `num_byzantine`, the paper's beta K, where K is the number of valid clients; f is clipped to 2 f < K. f = 0
    gives the mean, the largest f the median. Clients count equally; the weights are a diagnostic
    (`fedsim.aggregators.coordinatewise`). With weights from another rule (`server.weighting`), the f largest of them
    are trimmed at each end, so that any f clients have at most what is trimmed; if that is half, this is the weighted
    median. Raises `ValueError` if 2 f >= K for the whole cohort.

    >>> import fedsim
    >>> rule = fedsim.aggregators.trimmed_mean(num_byzantine=1)
    >>> fedsim.aggregators.apply(rule, [[1.0], [2.0], [4.0], [99.0]]).update
    Array([3.], dtype=float32)
    """

    def aggregate(report: CohortReport) -> Aggregate:
        f = assumed_byzantine(num_byzantine, report)
        if report.weights is not None:
            weights = jnp.sort(example_weights(report.valid, report), descending=True)
            return trim_by_weight(report, jnp.sum(jnp.where(jnp.arange(weights.size) < f, weights, 0.0)))
        return _mean_of_ranks(_columns(report, report.valid), (f, jnp.sum(report.valid) - f - 1), ASCENDING, report)

    return stateless(aggregate)


def meamed(
    *,
    num_byzantine: Annotated[
        Array | int | None, Traced(ge=0), MINORITY, "f, values excluded at each parameter; default: (K - 3) // 2"
    ] = None,
) -> Aggregator:
    """The mean, at each parameter, of the K - f values nearest to the median (the paper's mean around median).

    f = `num_byzantine`, K is the number of valid clients; f is clipped to 2 f < K, and f = 0 gives the mean. Of two
    values with the same distance, the lower one is kept. Clients count equally; the weights are a diagnostic
    (`fedsim.aggregators.coordinatewise`). Raises `ValueError` if 2 f >= K for the whole cohort.
    """

    def aggregate(report: CohortReport) -> Aggregate:
        num_kept = jnp.sum(report.valid) - assumed_byzantine(num_byzantine, report)
        return mean_around_median(report, report.valid, num_kept)

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


def mean_around_median(report: CohortReport, mask: Array, num_kept: Array, center: Array | None = None) -> Aggregate:
    """At each parameter, the mean of the `num_kept` values nearest to the median of the clients in `mask` [K].

    Of two values with the same distance, the lower one is kept. A `center` [d] takes the place of the median.
    """
    columns = _columns(report, mask)
    if center is None:
        center = rank_mean(columns, _rank_weights(_median_ranks(jnp.sum(mask)), mask))
    kept = jnp.zeros_like(num_kept), num_kept - 1
    return _mean_of_ranks(columns._replace(center=center), kept, NEAREST, report)


def _columns(report: CohortReport, mask: Array) -> CenteredColumns:
    rows = ravel_updates(report.updates)
    return CenteredColumns(rows, mask, jnp.zeros(rows.shape[1], jnp.float32))


def _median_ranks(num_values: Array) -> Ranks:
    """The ranks of the median of `num_values` [] values: the middle one, or the middle two."""
    return (num_values - 1) // 2, num_values // 2


def _rank_weights(kept: Ranks, mask: Array) -> Array:
    ranks = jnp.arange(mask.size)
    return normalize(((ranks >= kept[0]) & (ranks <= kept[1]) & (ranks < jnp.sum(mask))).astype(jnp.float32))


def _mean_of_ranks(columns: CenteredColumns, kept: Ranks, order: Order, report: CohortReport) -> Aggregate:
    """The mean of the values of the same ranks, `kept` in this `order`, at all parameters."""
    mask = columns.mask
    mean = columns.center + rank_mean(columns, _rank_weights(kept, mask), order)
    update = unravel_update(jnp.where(jnp.any(mask), mean, 0.0), report.updates)

    step = -(-columns.center.size // MAX_SAMPLES)
    sample = columns._replace(values=columns.values[:, ::step], center=columns.center[::step]).stored()
    first, last = keys_at_ranks(sample, kept, order)
    keys = sample.keys(order)
    is_kept = (keys >= first[None]) & (keys <= last[None]) & mask[:, None]
    return Aggregate(update, normalize(jnp.mean(is_kept, axis=1)))
