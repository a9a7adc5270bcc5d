"""Rules that search all ways to drop f clients of a cohort for the best one: MDA and SMEA.

MDA: El Mhamdi, Guerraoui, Guirguis, Hoang, Rouault: "Genuinely Distributed Byzantine Machine Learning", PODC 2020,
https://arxiv.org/abs/1905.03853, after Rousseeuw: "Multivariate Estimation with High Breakdown Point", 1985. SMEA:
Allouah, Guerraoui, Gupta, Pinot, Stephan: "On the Privacy-Robustness-Utility Trilemma in Distributed Learning",
ICML 2023, https://arxiv.org/abs/2302.04787.
"""

from collections.abc import Callable
from itertools import combinations
from math import comb
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.aggregators.geometry import gram_around_mean, pairwise_distances, top_eigenpair
from fedsim.aggregators.weighting import MINORITY, assumed_minority, equal_weights, from_weights
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import Bounds
from fedsim.core.trees import nonzero, safe_sqrt
from fedsim.core.types import Array, CohortReport

MAX_SUBSETS = 200_000
"""10 of 20 clients are 184,756."""
MAX_BATCH_SIZE = 1 << 22
"""Elements of the distance matrices of the subsets that are evaluated together."""
SEARCH_BATCH = 256
"""Subsets that are evaluated in one step of the search."""
NUM_POWER_STEPS = 12
"""Steps of the power method; its Rayleigh quotients are lower bounds of the largest eigenvalue."""
ROUNDING = 2e-6
"""Relative error of a cost: eigenvalues have more than distances."""
BOUND_ROUNDING = 1e-4
"""An upper bound of the relative error of a lower bound."""

StaticByzantine = Annotated[
    int | None,
    Bounds(ge=0),
    MINORITY,
    "f, assumed number of Byzantine clients in a cohort (static); default: (K - 3) // 2",
]


def mda(*, num_byzantine: StaticByzantine = None) -> Aggregator:
    """The mean of the K - f updates with the least diameter, which is the largest distance between two of them.

    f = `num_byzantine`, K is the number of valid clients; f is clipped to 2 f < K. Ties and invalid clients:
    `fedsim.aggregators.subsets.best_subset`. Raises `ValueError` if there are too many subsets.
    """

    def diameter(distances: Array, mask: Array) -> Array:
        return jnp.max(jnp.where(mask[:, None] & mask[None, :], distances, 0.0))

    return from_weights(lambda report: best_subset(report, num_byzantine, diameter))


def smea(*, num_byzantine: StaticByzantine = None) -> Aggregator:
    """The mean of the K - f updates whose covariance has the least top eigenvalue.

    f = `num_byzantine`, K is the number of valid clients; f is clipped to 2 f < K. Ties and invalid clients:
    `fedsim.aggregators.subsets.best_subset`. Raises `ValueError` if there are too many subsets. The covariance is not
    formed: up to a factor, it has the same eigenvalues as the K x K inner products around the subset's mean.
    """

    def top_eigenvalue(distances: Array, mask: Array) -> Array:
        gram = gram_around_mean(distances, equal_weights(mask))
        return top_eigenpair(jnp.where(mask[:, None] & mask[None, :], gram, 0.0))[0]

    return from_weights(lambda report: best_subset(report, num_byzantine, top_eigenvalue, _rayleigh_quotient))


def _rayleigh_quotient(distances: Array, mask: Array) -> Array:
    """A lower bound of the top eigenvalue of the inner products around the mean of a subset, up to rounding.

    That matrix is - C D C / 2, D the squared `distances` and C the projection on vectors [K] in the subset with the
    sum 0. So a step of the power method for many subsets is one product with D.
    """

    def project(vector: Array) -> Array:
        return jnp.where(mask, vector - equal_weights(mask) @ jnp.where(mask, vector, 0.0), 0.0)

    def step(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        vector = carry[0] / nonzero(jnp.max(jnp.abs(carry[0])))  # so that squares are within float32
        vector = vector / nonzero(safe_sqrt(vector @ vector))
        product = project(jnp.matmul(distances, vector, precision="highest") / -2)
        return product, vector @ product

    start = project(jax.random.normal(jax.random.key(0), mask.shape))
    return jax.lax.fori_loop(0, NUM_POWER_STEPS, step, (start, jnp.zeros(())))[1]


def best_subset(
    report: CohortReport,
    num_byzantine: int | None,
    compute_cost: Callable[[Array, Array], Array],
    lower_bound: Callable[[Array, Array], Array] | None = None,
) -> Array:
    """Equal weights [K] of the subset of n - f of the n valid clients that has the least cost.

    `compute_cost(distances [K, K], mask [K])` gives a subset's cost from the squared distances of all clients. f is
    clipped to 2 f < n; its default follows K, not n. Ties, up to `ROUNDING`: the set with the lower client ids,
    compared one by one. `lower_bound` has the arguments of `compute_cost`: costs are computed in the order of their
    bounds, until no other subset can be the best.
    Raises `ValueError` if there are more than `MAX_SUBSETS` subsets, or if 2 f >= K.

    All subsets of K - f rows are enumerated, and those that drop the wrong number of valid clients are ignored: K and
    f shape the program, but which clients are valid is data. The weights are constant almost everywhere, so their
    derivative is 0.
    """
    dropped = _dropped_rows(report.valid.size, num_byzantine)
    f = assumed_minority(dropped.shape[1], report)
    num_kept = jnp.sum(report.valid) - f

    order = jnp.lexsort((report.client_ids, report.valid))
    valid, distances = report.valid[order], jax.lax.stop_gradient(pairwise_distances(report)[order][:, order])

    def kept(rows: Array) -> Array:
        return valid & jnp.ones_like(valid).at[rows].set(False)

    def if_eligible(evaluate: Callable[[Array, Array], Array]) -> Callable[[Array], Array]:
        return lambda rows: jnp.where(jnp.sum(kept(rows)) == num_kept, evaluate(distances, kept(rows)), jnp.inf)

    batch_size = min(max(MAX_BATCH_SIZE // distances.size, 1), len(dropped))
    first = jax.lax.map(if_eligible(lower_bound or compute_cost), dropped, batch_size=batch_size)
    cost = jax.vmap(if_eligible(compute_cost))
    costs = first if lower_bound is None else _search(first, lambda subsets: cost(dropped[subsets]))
    best = dropped[jnp.argmax(costs <= jnp.min(costs) * (1 + ROUNDING))]
    return equal_weights(kept(best))[jnp.argsort(order)]


def _search(bounds: Array, compute_costs: Callable[[Array], Array]) -> Array:
    """Costs [S]; infinity for subsets that were not evaluated.

    Subsets are evaluated by ascending lower `bounds` [S], until no other can be the best.
    """

    def is_open(carry: tuple[Array, Array]) -> Array:
        bounds, costs = carry
        return jnp.any(jnp.isfinite(bounds) & (bounds <= jnp.min(costs) * (1 + BOUND_ROUNDING)))

    def evaluate(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        bounds, costs = carry
        _, lowest = jax.lax.top_k(-bounds, min(SEARCH_BATCH, len(bounds)))
        return bounds.at[lowest].set(jnp.inf), costs.at[lowest].set(compute_costs(lowest))

    return jax.lax.while_loop(is_open, evaluate, (bounds, jnp.full_like(bounds, jnp.inf)))[1]


def _dropped_rows(num_rows: int, num_byzantine: int | None) -> Array:
    """All sets of f of `num_rows` rows [S, f], ordered by the rows that remain."""
    MINORITY.check("num_byzantine", num_byzantine, num_rows)
    f = max((num_rows - 3) // 2, 0) if num_byzantine is None else num_byzantine
    if (num_subsets := comb(num_rows, f)) > MAX_SUBSETS:
        raise ValueError(
            f"num_byzantine: must leave at most {MAX_SUBSETS:,} subsets of the cohort to search, got f = {f} of "
            f"{num_rows} clients, which are {num_subsets:,}; use a smaller num_byzantine or cohort"
        )
    return jnp.asarray(np.array(list(combinations(range(num_rows), f)), np.int32)[::-1])
