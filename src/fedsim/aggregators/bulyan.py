"""Bulyan.

El Mhamdi, Guerraoui, Rouault: "The Hidden Vulnerability of Distributed Learning in Byzantium", ICML 2018,
https://arxiv.org/abs/1802.07927
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp

from fedsim.aggregators.coordinatewise import mean_around_median
from fedsim.aggregators.geometry import pairwise_distances
from fedsim.aggregators.weighting import assumed_byzantine, stateless
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import Limit, Traced
from fedsim.core.trees import distinct_pairs
from fedsim.core.types import Aggregate, Array, CohortReport

LIMIT = Limit("4 f + 3 <= K", lambda k: (k - 3) // 4)


def bulyan(
    *,
    num_byzantine: Annotated[
        Array | int | None,
        Traced(ge=0),
        LIMIT,
        "f, assumed number of Byzantine clients in a cohort; default: (K - 3) // 4",
    ] = None,
    beta: Annotated[
        Literal["n-4f", "n-2f"], "values averaged at each parameter: as in the paper, or all selected ones"
    ] = "n-4f",
) -> Aggregator:
    """Repeated Krum selects K - 2 f clients; then, at each parameter, the mean of the values nearest to the median.

    Each time Krum chooses among the n remaining clients: the least sum of squared distances to the n - f - 2 nearest,
    or at least one. Of the theta = K - 2 f selected clients, the theta - 2 f = K - 4 f values nearest to their median
    are averaged at each parameter.

    f = `num_byzantine`, K is the number of valid clients. The paper requires K >= 4 f + 3, to which f is clipped; f = 0
    gives the mean. Equal scores: the lower client id wins; equal means after rounding (`geometry.pairwise_distances`).
    Clients count equally; the weights are a diagnostic (`fedsim.aggregators.coordinatewise`). Raises `ValueError` if
    4 f + 3 > K for the whole cohort.
    """

    def aggregate(report: CohortReport) -> Aggregate:
        f = assumed_byzantine(num_byzantine, report, LIMIT)
        num_selected = jnp.sum(report.valid) - 2 * f
        selected = _repeat_krum(pairwise_distances(report), report, f, num_selected)
        num_kept = num_selected - (2 * f if beta == "n-4f" else 0)
        return mean_around_median(report, selected, num_kept)

    return stateless(aggregate)


def _repeat_krum(distances: Array, report: CohortReport, f: Array, num_selected: Array) -> Array:
    """The mask [K] of the `num_selected` valid clients that Krum chooses one after the other.

    Each row of `distances` [K, K] is sorted once; a chosen client is then removed from all sorted rows.
    """
    valid, rows = report.valid, jnp.arange(report.valid.size)
    pairs = distinct_pairs(valid)
    order = jnp.argsort(jnp.where(pairs, distances, jnp.inf), axis=1)
    sorted_distances = jnp.take_along_axis(distances, order, axis=1)
    positions = jnp.argsort(order, axis=1)  # [K, K] of each client in each sorted row

    def choose(i: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        remaining, is_remaining, ranks = carry
        num_remaining = jnp.sum(remaining)
        num_neighbors = jnp.minimum(jnp.maximum(num_remaining - f - 2, 1), num_remaining - 1)
        sums = jnp.sum(jnp.where(is_remaining & (ranks < num_neighbors), sorted_distances, 0.0), axis=1)
        scores = jnp.where(remaining, sums, jnp.inf)
        best = remaining & (scores == jnp.min(scores))
        chosen = jnp.argmin(jnp.where(best, report.client_ids, jnp.iinfo(jnp.int32).max))
        position = jnp.where(i < num_selected, positions[:, chosen], rows.size)[:, None]
        remaining = remaining & ~((rows == chosen) & (i < num_selected))
        return remaining, is_remaining & (rows[None, :] != position), ranks - (rows[None, :] > position)

    start = valid, jnp.take_along_axis(pairs, order, axis=1), jnp.broadcast_to(rows[None, :], distances.shape)
    remaining, _, _ = jax.lax.fori_loop(0, rows.size, choose, start)
    return valid & ~remaining
