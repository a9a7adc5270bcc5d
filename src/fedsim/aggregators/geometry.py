"""Distances, inner products and top eigenvectors of a cohort's updates, accurate in float32."""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from fedsim.aggregators.weighting import Weights, equal_weights
from fedsim.core.client import lockstep_max
from fedsim.core.trees import distinct_pairs, gram_matrix, nonzero, safe_sqrt, squared_norms
from fedsim.core.types import Array, CohortReport, Updates

Pairs: TypeAlias = Float[Array, "K K"]  # inner products, distances and the like of all pairs of clients

MIN_RELATIVE_DISTANCE = 1e-3
"""A squared distance below this share of the squared norms has lost most of its digits in their difference."""
MAX_DISTANCE = 4.0
"""Larger than any cosine distance."""
NUM_SQUARINGS = 20
"""Gives the power 2^20: smaller eigenvalues then change the largest by at most 4e-7 of it."""


def cosine_similarities(gram: Pairs) -> Pairs:
    """Cosine similarities from inner products `gram`; 0 for a zero update."""
    norms = safe_sqrt(jnp.diagonal(gram))
    inverse = jnp.where(norms > 0, 1 / nonzero(norms), 0.0)
    return gram * inverse[:, None] * inverse[None, :]


def center(updates: Updates, weights: Weights) -> Updates:
    """`updates` minus a point between them; `weights` sum to 1 and are zero for ignored clients.

    Distances stay the same, but without this the inner products of near-equal updates lose up to 3 % of them in
    float32. The point is the mean of the updates clipped to the median norm: a single huge update would pull the plain
    mean away, and rounding would hide the differences between all other updates. It is constant in derivatives, since
    distances do not depend on it.
    """
    fixed = jax.lax.stop_gradient(updates)
    norms = safe_sqrt(squared_norms(fixed))
    median = jnp.nanmedian(jnp.where(weights > 0, norms, jnp.nan))
    weights = weights * jnp.minimum(1.0, jnp.where(weights > 0, median, 0.0) / nonzero(norms))
    point = jax.tree.map(lambda u: jnp.tensordot(weights, u, axes=1, precision="highest"), fixed)
    return jax.tree.map(lambda u, p: u - p[None], updates, point)


def pairwise_distances(report: CohortReport) -> Pairs:
    """Squared distances of the updates, exactly symmetric, from inner products around one of the updates.

    That is the one nearest to their middle. Its difference to others is exact where that to a rounded mean is not, so
    the distances of small integers are exact, and ties are ties. Pairs that are too close for inner products in
    float32, as colluding clients or a tight group next to a large outlier are, get `_direct_distances` instead; the
    derivative is that of the inner products.
    """
    from_middle = squared_norms(center(report.updates, equal_weights(report.valid)))
    nearest = jnp.argmin(jnp.where(report.valid, from_middle, jnp.inf))
    gram = gram_matrix(_around(report.updates, nearest))
    norms = jnp.diagonal(gram)
    distances = norms[:, None] + norms[None, :] - (gram + gram.T)  # not clipped at 0, where a derivative would end
    is_small = distances < MIN_RELATIVE_DISTANCE * (norms[:, None] + norms[None, :])
    inaccurate = distinct_pairs(report.valid) & is_small
    measured = jax.lax.cond(
        lockstep_max(jnp.any(inaccurate)),  # one condition for all runs in lockstep: `vmap` would compute both branches
        lambda: jnp.where(inaccurate, _direct_distances(jax.lax.stop_gradient(report.updates), inaccurate), distances),
        lambda: distances,
    )
    return _with_value(distances, jnp.maximum(measured, 0.0))


def _around(updates: Updates, client: Int[Array, ""]) -> Updates:
    """`updates` minus that of one client.

    Distances do not depend on it, and so neither does their derivative: the scatter that a row has is slow on CPUs.
    """
    return jax.tree.map(lambda u: u - jax.lax.stop_gradient(u[client])[None], updates)


def _direct_distances(updates: Updates, pairs: Bool[Array, "K K"]) -> Pairs:
    """Squared distances of `updates` as sums of squared differences, without cancellation.

    Only for the symmetric mask `pairs`, one pair after another; 0 elsewhere.
    """
    num_clients = len(pairs)
    upper = jnp.triu(pairs, 1).ravel()
    positions = jnp.nonzero(upper, size=max(1, num_clients * (num_clients - 1) // 2), fill_value=0)[0]

    def measure(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        count, distances = carry
        i, j = jnp.divmod(positions[count], num_clients)
        distance = squared_norms(jax.tree.map(lambda u: (u[i] - u[j])[None], updates))[0]
        return count + 1, distances.at[i, j].set(distance).at[j, i].set(distance)

    start = jnp.zeros((), jnp.int32), jnp.zeros(pairs.shape, jnp.float32)
    return jax.lax.while_loop(lambda carry: carry[0] < jnp.sum(upper), measure, start)[1]


@jax.custom_jvp
def _with_value(differentiated: Pairs, value: Pairs) -> Pairs:
    """`value`, with the derivative of `differentiated`."""
    return value


_with_value.defjvp(lambda primals, tangents: (primals[1], tangents[0]))


def gram_around_mean(distances: Pairs, weights: Weights) -> Pairs:
    """Inner products of the updates around their mean with `weights`, from squared `distances`.

    A client without weight does not affect the others' accuracy: next to a large outlier, a tight group keeps its
    digits.
    """
    to_all = jnp.matmul(distances, weights, precision="highest")
    return (to_all[:, None] + to_all[None, :] - distances - weights @ to_all) / 2


def distances_to_mean(gram: Pairs, weights: Weights) -> Float[Array, " K"]:
    """Squared distance of each update from the mean with `weights`, from inner products `gram`."""
    products = jnp.matmul(gram, weights, precision="highest")
    return jnp.diagonal(gram) - 2 * products + weights @ products


def prim(distances: Pairs, valid: Bool[Array, " K"]) -> tuple[Int[Array, " K"], Float[Array, " K"]]:
    """The clients in the order in which Prim's algorithm joins them, and the edge that joins each.

    It starts with the first of the `valid` clients and always adds the one nearest to those before, by `distances`,
    which are below `MAX_DISTANCE`. This is the edge of the first, and of invalid clients, which come last.
    """
    num_clients = valid.size
    distances = jnp.where(valid[:, None] & valid[None, :], distances, MAX_DISTANCE)
    start = jnp.argmax(valid)

    def join(i: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        in_tree, to_tree, order, edges = carry
        nearest = jnp.argmin(jnp.where(in_tree, jnp.inf, to_tree))
        order, edges = order.at[i].set(nearest), edges.at[i].set(to_tree[nearest])
        return in_tree.at[nearest].set(True), jnp.minimum(to_tree, distances[nearest]), order, edges

    in_tree = jnp.arange(num_clients) == start
    carry = in_tree, distances[start], jnp.full(num_clients, start), jnp.full(num_clients, MAX_DISTANCE)
    return jax.lax.fori_loop(1, num_clients, join, carry)[2:]


def iterate_weights(report: CohortReport, prior: Weights, iterate: Callable[[Pairs], Weights]) -> Weights:
    """The weights that `iterate(gram)` converges to, of a method whose iterates are convex combinations of updates.

    `gram` holds inner products around a mean with weights `prior`. If the result is so close to an update
    that their distance is inaccurate in float32 (in a tight group next to a large outlier), the method runs once more
    with inner products around that update.
    """
    gram = gram_matrix(center(report.updates, prior))
    weights = iterate(gram)
    squared = distances_to_mean(gram, weights)
    is_inaccurate = jnp.any(report.valid & (squared < MIN_RELATIVE_DISTANCE * jnp.diagonal(gram)))

    def around_nearest() -> Array:
        nearest = jnp.argmin(jnp.where(report.valid, squared, jnp.inf))
        shifted = gram - gram[nearest][None] - gram[:, nearest, None] + gram[nearest, nearest]
        measured = gram_matrix(_around(jax.lax.stop_gradient(report.updates), nearest))
        return jnp.where(is_inaccurate, iterate(_with_value(shifted, measured)), weights)

    # One condition for all runs in lockstep: under `vmap`, separate ones would always compute both branches.
    return jax.lax.cond(lockstep_max(is_inaccurate), around_nearest, lambda: weights)


def random_columns(rows: Float[Array, "K d"], number: int, key: Array) -> Float[Array, "K n"]:
    """`number` random columns of `rows`, without replacement; `rows` if there are no more."""
    size = rows.shape[1]
    return rows[:, jax.lax.top_k(jax.random.uniform(key, (size,)), number)[1]] if number < size else rows


def top_eigenpair(matrix: Pairs) -> tuple[Float[Array, ""], Float[Array, " K"]]:
    """The largest eigenvalue of a symmetric positive semidefinite `matrix`, and its eigenvector.

    By repeated squaring, which converges to the projection on the top eigenvector; a mixture of eigenvectors if
    float32 does not separate the largest eigenvalues. Both are 0 for a zero matrix. Unlike `jnp.linalg.eigh`, this is
    fast for many small matrices on accelerators, and it cannot deadlock in LAPACK inside a larger program on CPUs.
    """

    def square(_: Array, power: Pairs) -> Pairs:
        power = jnp.matmul(power, power, precision="highest")
        return power / nonzero(jnp.trace(power))

    power = jax.lax.fori_loop(0, NUM_SQUARINGS, square, matrix / nonzero(jnp.trace(matrix)))
    column = power[jnp.argmax(jnp.diagonal(power))]
    vector = column / nonzero(safe_sqrt(jnp.sum(jnp.square(column))))
    return vector @ jnp.matmul(matrix, vector, precision="highest"), vector
