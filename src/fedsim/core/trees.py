"""Sums, products and distances of a cohort's updates [K, ...], leaf by leaf, whatever the model's structure."""

import jax
import jax.numpy as jnp

from fedsim.core.types import Array, PyTree

LOST = 1e-3  # of two squared norms: a squared distance from inner products below this has lost most of its digits


def per_client(values: Array, like: Array) -> Array:
    """`values` [K] with axes of length 1 behind, to be broadcast with `like` [K, ...]."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def select_clients(chosen: Array, these: PyTree, others: PyTree) -> PyTree:
    """`these` [K, ...] of the clients `chosen` [K], and `others` [K, ...] of the rest."""
    return jax.tree.map(lambda a, b: jnp.where(per_client(chosen, a), a, b), these, others)


def flat(u: Array) -> Array:
    """A leaf [K, ...] as float32 rows [K, d]."""
    return u.reshape(u.shape[0], -1).astype(jnp.float32)


def as_dtype(values: Array, like: Array) -> Array:
    """`values` with the dtype of `like`; rounded where that is an integer: a counter among a model's statistics."""
    return (jnp.round(values) if jnp.issubdtype(like.dtype, jnp.integer) else values).astype(like.dtype)


def weighted_sum(weights: Array, updates: PyTree) -> PyTree:
    """The sum over clients of weights [K] times updates [K, ...], leaf by leaf."""

    def leaf(u: Array) -> Array:
        if jnp.issubdtype(u.dtype, jnp.integer):
            return as_dtype(jnp.tensordot(weights, u.astype(jnp.float32), axes=1, precision="highest"), u)
        return jnp.tensordot(weights.astype(u.dtype), u, axes=1, precision="highest")

    return jax.tree.map(leaf, updates)


def gram(updates: PyTree) -> Array:
    """Inner products [K, K] of the updates [K, ...] of a cohort, over all parameters."""

    def leaf(u: Array) -> Array:
        rows = flat(u)
        return jnp.matmul(rows, rows.T, precision="highest")

    return jnp.sum(jnp.stack([leaf(u) for u in jax.tree.leaves(updates)]), axis=0)


def squared_norms(updates: PyTree) -> Array:
    """Squared norm [K] of each client's update [K, ...], over all parameters."""
    square = lambda u: jnp.sum(jnp.square(u.astype(jnp.float32)), axis=tuple(range(1, u.ndim)))
    return jnp.sum(jnp.stack([square(u) for u in jax.tree.leaves(updates)]), axis=0)


def squared_norm(update: PyTree) -> Array:
    """The squared norm [] of one update [...], over all parameters."""
    return squared_norms(jax.tree.map(lambda a: a[None], update))[0]


def products(updates: PyTree, direction: PyTree) -> Array:
    """Inner products [K] of the updates [K, ...] with one direction [...], over all parameters."""

    def leaf(u: Array, d: Array) -> Array:
        return jnp.matmul(flat(u), d.reshape(-1).astype(jnp.float32), precision="highest")

    return jnp.sum(jnp.stack(jax.tree.leaves(jax.tree.map(leaf, updates, direction))), axis=0)


def centred(updates: PyTree, weights: Array) -> PyTree:
    """`updates` [K, ...] minus a point in their midst; `weights` [K] sum to 1, zero for clients that do not count.

    Distances do not change, but near-equal updates would lose 3e-2 of them to float32 rounding without this. The point
    is the mean of the updates scaled down to the median norm: beside a plain mean, drawn away by one huge update, the
    others' differences would drown in rounding.
    """
    norms = jnp.sqrt(squared_norms(updates))
    median = jnp.nanmedian(jnp.where(weights > 0, norms, jnp.nan))
    weights = weights * jnp.minimum(1.0, jnp.where(weights > 0, median, 0.0) / jnp.where(norms > 0, norms, 1.0))
    return jax.tree.map(lambda u: u - jnp.tensordot(weights, u, axes=1, precision="highest")[None], updates)


def squared_distances(inner: Array) -> Array:
    """Squared distances [K, K] from inner products [K, K]."""
    norms = jnp.diagonal(inner)
    return jnp.maximum(norms[:, None] + norms[None, :] - 2 * inner, 0.0)


@jax.custom_jvp
def direct_distances(updates: PyTree, pairs: Array) -> Array:
    """Squared distances [K, K] of updates [K, ...] as sums of squared differences, where inner products lose them.

    Nothing cancels, however near two updates are beside their own size. Of the symmetric `pairs` [K, K] alone, one
    after another; 0 of the others.
    """
    num_clients = len(pairs)
    upper = jnp.triu(pairs, 1).ravel()
    places = jnp.nonzero(upper, size=max(1, num_clients * (num_clients - 1) // 2), fill_value=0)[0]

    def measure(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        number, distances = carry
        i, j = jnp.divmod(places[number], num_clients)
        apart = squared_norms(jax.tree.map(lambda u: (u[i] - u[j])[None], updates))[0]
        return number + 1, distances.at[i, j].set(apart).at[j, i].set(apart)

    start = jnp.zeros((), jnp.int32), jnp.zeros(pairs.shape)
    return jax.lax.while_loop(lambda carry: carry[0] < jnp.sum(upper), measure, start)[1]


@direct_distances.defjvp
def _direct_distances_jvp(primals: tuple[PyTree, Array], tangents: tuple[PyTree, Array]) -> tuple[Array, Array]:
    """For attacks that follow the gradient of a rule, which cannot be taken through the loop: K passes instead."""
    (updates, pairs), (moves, _) = primals, tangents

    def to_all(k: Array) -> Array:
        leaf = lambda u, v: jnp.sum((u - u[k][None]) * (v - v[k][None]), axis=tuple(range(1, u.ndim)))
        return 2 * jnp.sum(jnp.stack(jax.tree.leaves(jax.tree.map(leaf, updates, moves))), axis=0)

    moved = jax.lax.map(to_all, jnp.arange(len(pairs)))
    return direct_distances(updates, pairs), jnp.where(pairs, moved, 0.0)


def sums_to_nearest(distances: Array, among: Array, number: Array) -> Array:
    """For each of the clients `among` [K] the sum [K] of its `number` least `distances` [K, K] to others of them."""
    slots = jnp.arange(among.size)
    others = among[:, None] & among[None, :] & (slots[:, None] != slots[None, :])
    nearest = jnp.sort(jnp.where(others, distances, jnp.inf), axis=1)
    return jnp.sum(jnp.where(slots[None, :] < number, nearest, 0.0), axis=1)


def cosines(inner: Array) -> Array:
    """Cosine similarities [K, K] from inner products [K, K]; 0 for an update that is zero."""
    norms = jnp.sqrt(jnp.diagonal(inner))
    inverse = jnp.where(norms > 0, 1 / jnp.where(norms > 0, norms, 1.0), 0.0)
    return inner * inverse[:, None] * inverse[None, :]


def as_rows(updates: PyTree) -> Array:
    """The updates [K, ...] of a cohort as one float32 matrix [K, d], d all parameters; `as_tree` goes back."""
    return jnp.concatenate([flat(u) for u in jax.tree.leaves(updates)], axis=1)


def as_tree(row: Array, updates: PyTree) -> PyTree:
    """A row [d] as an update like one client's of `updates` [K, ...]; integers are rounded."""
    leaves, structure = jax.tree.flatten(updates)
    ends = [sum(u[0].size for u in leaves[: i + 1]) for i in range(len(leaves))]
    parts = jnp.split(row, ends[:-1])
    row_leaves = [as_dtype(part, u).reshape(u.shape[1:]) for part, u in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, row_leaves)


def clip_factors(updates: PyTree, radius: Array | float) -> Array:
    """What each update [K, ...] has to be scaled with to have norm `radius` at most: [K], from 0 to 1."""
    norms = jnp.sqrt(squared_norms(updates))
    return jnp.where(norms > radius, radius / jnp.where(norms > 0, norms, 1.0), 1.0)


def scaled(factors: Array, updates: PyTree) -> PyTree:
    """Each update [K, ...] times its factor [K]; integers are rounded."""
    return jax.tree.map(lambda u: as_dtype(per_client(factors, u) * u, u), updates)
