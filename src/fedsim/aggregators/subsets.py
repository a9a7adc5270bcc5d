"""Rules that search all ways to drop f clients of a cohort for the best one: MDA and SMEA.

MDA: El Mhamdi, Guerraoui, Guirguis, Hoang, Rouault: "Genuinely Distributed Byzantine Machine Learning", PODC 2020,
https://arxiv.org/abs/1905.03853, after Rousseeuw: "Multivariate Estimation with High Breakdown Point", 1985. SMEA:
Allouah, Guerraoui, Gupta, Pinot, Stephan: "On the Privacy-Robustness-Utility Trilemma in Distributed Learning",
ICML 2023, https://arxiv.org/abs/2302.04787.
"""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from math import comb
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.aggregators.geometry import gram_around_mean, pairwise_distances, top_eigenpair
from fedsim.aggregators.weighting import MINORITY, assumed_byzantine, equal_weights, from_weights
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import Bounds
from fedsim.core.trees import nonzero
from fedsim.core.types import Array, CohortReport, Scalar

MAX_SUBSETS = 200_000
"""10 of 20 clients are 184,756."""
MAX_BATCH_SIZE = 1 << 22
"""Elements of the distance matrices of the subsets that are evaluated together."""
NUM_DIRECTIONS = 2
"""Top eigenvectors of all clients from which the power method starts in each subset."""
NUM_POWER_STEPS = 1, 12
"""Steps of the power method, whose Rayleigh quotients are lower bounds: for all subsets, and for the most promising."""
MIN_REMAINING = 1e-3
"""Share of a vector's squared norm that must remain without its mean, so that the rest sums to 0 but for rounding."""
SEARCH_BATCHES = 256, 16
"""Subsets that get the second lower bound in one step of the search, and that are evaluated in one step."""
ROUNDING = 2e-6
"""Relative error of a cost: eigenvalues have more than distances."""
BOUND_ROUNDING = 1e-4
"""An upper bound of the relative error of a lower bound."""

Cost = Callable[[Array, Array], Array]
"""Of a subset, a mask [K], by the squared distances [K, K] of all clients."""
LowerBound = Callable[[int, Array], Array]
"""Of the cost of a subset, a mask [K], by a number of steps."""
MakeLowerBound = Callable[[Array, Array], LowerBound]
"""For squared distances [K, K] and valid clients [K]."""

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
        return top_eigenpair(_gram(distances, mask))[0]

    return from_weights(lambda report: best_subset(report, num_byzantine, top_eigenvalue, _rayleigh_quotients))


def _rayleigh_quotients(distances: Array, valid: Array) -> LowerBound:
    """Lower bounds of the top eigenvalue of the inner products around the mean of a subset, up to rounding.

    That matrix is - C D C / 2, D the squared `distances` and C the projection on vectors [K] in the subset with the
    sum 0. So a step of the power method for many subsets is one product with D. It starts from top eigenvectors of all
    clients: most subsets share one of their largest directions.
    """
    gram, directions = _gram(distances, valid), []
    for _ in range(NUM_DIRECTIONS):
        value, direction = top_eigenpair(gram)
        gram = gram - value * direction[:, None] * direction[None, :]
        directions.append(direction)

    def bound(num_steps: int, mask: Array) -> Array:
        size = nonzero(jnp.sum(mask.astype(jnp.float32)))

        def step(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            inside = jnp.where(mask[None, :], carry[0], 0.0)
            vectors = jnp.where(mask[None, :], inside - jnp.sum(inside, 1, keepdims=True) / size, 0.0)
            products = jnp.matmul(vectors, distances, precision="highest") / -2
            squares, quotients = jnp.sum(jnp.square(vectors), 1), jnp.sum(vectors * products, 1)
            is_accurate = squares > MIN_REMAINING * jnp.sum(jnp.square(inside), 1)
            quotients = jnp.where(is_accurate, quotients / nonzero(squares), 0.0)
            return products / nonzero(jnp.max(jnp.abs(products), 1, keepdims=True)), quotients

        start = jnp.stack(directions), jnp.zeros(NUM_DIRECTIONS)
        return jnp.max(jax.lax.fori_loop(0, num_steps, step, start)[1])

    return bound


def _gram(distances: Array, mask: Array) -> Array:
    """Inner products [K, K] around the mean of the clients in `mask`; 0 for others."""
    return jnp.where(mask[:, None] & mask[None, :], gram_around_mean(distances, equal_weights(mask)), 0.0)


def best_subset(
    report: CohortReport,
    num_byzantine: int | None,
    compute_cost: Cost,
    make_lower_bound: MakeLowerBound | None = None,
) -> Array:
    """Equal weights [K] of the subset of n - f of the n valid clients that has the least cost.

    f is clipped to 2 f < n; its default follows K, not n. Ties, up to `ROUNDING`: the set with the lower client ids,
    compared one by one. With lower bounds, costs are computed in their order, until no other subset can be the best.
    Raises `ValueError` if there are more than `MAX_SUBSETS` subsets, or if 2 f >= K.

    All subsets of K - f rows are enumerated, and those that drop the wrong number of valid clients are ignored: K and
    f shape the program, but which clients are valid is data. The weights are constant almost everywhere, so their
    derivative is 0.
    """
    masks = _masks(report.valid.size, num_byzantine)
    f = assumed_byzantine(int(np.sum(~masks[0])), report)
    order = jnp.lexsort((report.client_ids, report.valid))
    valid, distances = report.valid[order], jax.lax.stop_gradient(pairwise_distances(report)[order][:, order])
    find_best = partial(_find_best, masks, compute_cost, make_lower_bound)
    if len(masks) > _batch_size(distances):  # run by run: a search fills a device, and takes longer in some runs
        find_best = jax.custom_batching.sequential_vmap(find_best)
    return equal_weights(find_best(distances, valid, jnp.sum(valid) - f))[jnp.argsort(order)]


def _find_best(
    masks: np.ndarray,
    compute_cost: Cost,
    make_lower_bound: MakeLowerBound | None,
    distances: Array,
    valid: Array,
    num_kept: Array,
) -> Array:
    """The best of the subsets `masks` [S, K], without invalid clients; `distances` [K, K]."""
    subsets = jnp.asarray(masks)

    def if_eligible(evaluate: Callable[[Array], Array]) -> Callable[[Array], Array]:
        return lambda rows: jnp.where(jnp.sum(rows & valid) == num_kept, evaluate(rows & valid), jnp.inf)

    cost = if_eligible(partial(compute_cost, distances))
    over_all = partial(jax.lax.map, xs=subsets, batch_size=min(_batch_size(distances), len(masks)))
    if make_lower_bound is None:
        costs = over_all(cost)
    else:
        bound = make_lower_bound(distances, valid)
        rough, close = (if_eligible(partial(bound, num_steps)) for num_steps in NUM_POWER_STEPS)

        def search_closely(numbers: Array, least: Array) -> Array:
            rows = subsets[numbers]
            return _search(jax.vmap(close)(rows), lambda i, _: jax.vmap(cost)(rows[i]), SEARCH_BATCHES[1], least)

        costs = _search(over_all(rough), search_closely, SEARCH_BATCHES[0], jnp.inf)
    return subsets[jnp.argmax(costs <= jnp.min(costs) * (1 + ROUNDING))] & valid


def _batch_size(distances: Array) -> int:
    """The number of subsets that are evaluated together."""
    return max(MAX_BATCH_SIZE // distances.size, 1)


def _search(bounds: Array, compute_costs: Callable[[Array, Array], Array], batch_size: int, least: Scalar) -> Array:
    """Costs [S]; infinity for subsets that were not evaluated.

    Subsets are evaluated by ascending lower `bounds` [S], until no other can be the best, or as good as the `least`
    cost of others.
    """

    def is_open(carry: tuple[Array, Array]) -> Array:
        bounds, costs = carry
        return jnp.any(jnp.isfinite(bounds) & (bounds <= jnp.minimum(least, jnp.min(costs)) * (1 + BOUND_ROUNDING)))

    def evaluate(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        bounds, costs = carry
        _, lowest = jax.lax.top_k(-bounds, min(batch_size, len(bounds)))
        new = compute_costs(lowest, jnp.minimum(least, jnp.min(costs)))
        return bounds.at[lowest].set(jnp.inf), costs.at[lowest].set(new)

    return jax.lax.while_loop(is_open, evaluate, (bounds, jnp.full_like(bounds, jnp.inf)))[1]


def _masks(num_rows: int, num_byzantine: int | None) -> np.ndarray:
    """All sets of K - f of the K = `num_rows` rows, as masks [S, K], ordered by the rows in them."""
    MINORITY.check("num_byzantine", num_byzantine, num_rows)
    f = max((num_rows - 3) // 2, 0) if num_byzantine is None else num_byzantine
    if (num_subsets := comb(num_rows, f)) > MAX_SUBSETS:
        raise ValueError(
            f"num_byzantine: must leave at most {MAX_SUBSETS:,} subsets of the cohort to search, got f = {f} of "
            f"{num_rows} clients, which are {num_subsets:,}; use a smaller num_byzantine or cohort"
        )
    masks = np.ones((num_subsets, num_rows), bool)
    np.put_along_axis(masks, np.array(list(combinations(range(num_rows), f)), int)[::-1], False, axis=1)
    return masks
