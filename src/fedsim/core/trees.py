"""Pytrees of a cohort's updates [K, ...]: sums, norms and inner products over all parameters, for any model."""

import jax
import jax.numpy as jnp

from fedsim.core.types import Array, PyTree


def expand_like(values: Array, like: Array) -> Array:
    """`values` [K] reshaped to [K, 1, ...], which broadcasts with `like` [K, ...]."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def nonzero(values: Array) -> Array:
    """`values` to divide by: 1 in place of those that are not positive."""
    return jnp.where(values > 0, values, 1.0)


def select_clients(mask: Array, on_true: PyTree, on_false: PyTree) -> PyTree:
    """`jnp.where` over clients: `on_true` [K, ...] where `mask` [K] is set, else `on_false` [K, ...]."""
    return jax.tree.map(lambda a, b: jnp.where(expand_like(mask, a), a, b), on_true, on_false)


def cast_like(values: Array, like: Array) -> Array:
    """`values` [...] with the dtype of `like`, rounded if it is an integer type, as are counters in statistics."""
    return (jnp.round(values) if jnp.issubdtype(like.dtype, jnp.integer) else values).astype(like.dtype)


def weighted_sum(weights: Array, updates: PyTree) -> PyTree:
    """The sum over clients of `weights` [K] times `updates` [K, ...]; integers are rounded."""

    def leaf(u: Array) -> Array:
        if jnp.issubdtype(u.dtype, jnp.integer):
            return cast_like(jnp.tensordot(weights, u.astype(jnp.float32), axes=1, precision="highest"), u)
        return jnp.tensordot(weights.astype(u.dtype), u, axes=1, precision="highest")

    return jax.tree.map(leaf, updates)


def squared_norms(updates: PyTree) -> Array:
    """Squared norm [K] of each update of `updates` [K, ...]."""
    square = lambda u: jnp.sum(jnp.square(u.astype(jnp.float32)), axis=tuple(range(1, u.ndim)))
    return jnp.sum(jnp.stack([square(u) for u in jax.tree.leaves(updates)]), axis=0)


def squared_norm(update: PyTree) -> Array:
    """Squared norm [] of one update [...]."""
    return squared_norms(jax.tree.map(lambda a: a[None], update))[0]


def inner_products(updates: PyTree, direction: PyTree) -> Array:
    """Inner products [K] of `updates` [K, ...] with one `direction` [...]."""

    def leaf(u: Array, d: Array) -> Array:
        return jnp.matmul(_rows(u), d.reshape(-1).astype(jnp.float32), precision="highest")

    return jnp.sum(jnp.stack(jax.tree.leaves(jax.tree.map(leaf, updates, direction))), axis=0)


def gram_matrix(updates: PyTree) -> Array:
    """Inner products [K, K] of all pairs of `updates` [K, ...]."""

    def leaf(u: Array) -> Array:
        rows = _rows(u)
        return jnp.matmul(rows, rows.T, precision="highest")

    return jnp.sum(jnp.stack([leaf(u) for u in jax.tree.leaves(updates)]), axis=0)


def squared_distances(gram: Array) -> Array:
    """Squared distances [K, K] of all pairs, from their inner products `gram` [K, K]."""
    norms = jnp.diagonal(gram)
    return jnp.maximum(norms[:, None] + norms[None, :] - 2 * gram, 0.0)


def sum_of_nearest(distances: Array, mask: Array, count: Array) -> Array:
    """For each client in `mask` [K], the sum [K] of the `count` smallest `distances` [K, K] to others in the mask."""
    rows = jnp.arange(mask.size)
    pairs = mask[:, None] & mask[None, :] & (rows[:, None] != rows[None, :])
    nearest = jnp.sort(jnp.where(pairs, distances, jnp.inf), axis=1)
    return jnp.sum(jnp.where(rows[None, :] < count, nearest, 0.0), axis=1)


def ravel_updates(updates: PyTree) -> Array:
    """`updates` [K, ...] as one float32 matrix [K, d] over all d parameters."""
    return jnp.concatenate([_rows(u) for u in jax.tree.leaves(updates)], axis=1)


def unravel_update(row: Array, updates: PyTree) -> PyTree:
    """`row` [d] as a pytree like one update of `updates` [K, ...]; integers are rounded."""
    leaves, structure = jax.tree.flatten(updates)
    ends = [sum(u[0].size for u in leaves[: i + 1]) for i in range(len(leaves))]
    parts = zip(jnp.split(row, ends[:-1]), leaves, strict=True)
    return jax.tree.unflatten(structure, [cast_like(part, u).reshape(u.shape[1:]) for part, u in parts])


def _rows(u: Array) -> Array:
    """A leaf [K, ...] as float32 rows [K, d]."""
    return u.reshape(u.shape[0], -1).astype(jnp.float32)
