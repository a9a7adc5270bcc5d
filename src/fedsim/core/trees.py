"""Pytrees of a cohort's updates [K, ...]: sums, norms and inner products over all parameters, for any model."""

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Num, Shaped

from fedsim.core.types import Array, PyTree, Updates


def expand_like(values: Shaped[Array, " K"], like: Shaped[Array, "K ..."]) -> Shaped[Array, "K ..."]:
    """`values` reshaped to [K, 1, ...], which broadcasts with `like`."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def nonzero(values: Num[Array, "..."]) -> Num[Array, "..."]:
    """`values` to divide by: 1 in place of those that are not positive."""
    return jnp.where(values > 0, values, 1.0)


def safe_sqrt(squares: Num[Array, "..."]) -> Num[Array, "..."]:
    """Square roots; 0 with a derivative of 0 where rounding left no positive number."""
    is_zero = squares <= 0
    return jnp.where(is_zero, 0.0, jnp.sqrt(jnp.where(is_zero, 1.0, squares)))


def select_clients(mask: Bool[Array, " K"], on_true: Updates, on_false: Updates) -> Updates:
    """`jnp.where` over clients: `on_true` where `mask` is set, else `on_false`."""
    return jax.tree.map(lambda a, b: jnp.where(expand_like(mask, a), a, b), on_true, on_false)


def mask_invalid(messages: PyTree, valid: Bool[Array, " K"]) -> PyTree:
    """`messages` [K, ...] with zeros for clients that are not `valid`."""
    return select_clients(valid, messages, jax.tree.map(jnp.zeros_like, messages))


def cast_like(values: Num[Array, "..."], like: Num[Array, "..."]) -> Num[Array, "..."]:
    """`values` with the dtype of `like`, rounded if it is an integer type, as are counters in statistics."""
    return (jnp.round(values) if jnp.issubdtype(like.dtype, jnp.integer) else values).astype(like.dtype)


def weighted_sum(weights: Num[Array, " K"], updates: Updates) -> PyTree:
    """The sum over clients of `weights` times `updates`; integers are rounded."""

    def leaf(u: Array) -> Array:
        if jnp.issubdtype(u.dtype, jnp.integer):
            return cast_like(jnp.tensordot(weights, u.astype(jnp.float32), axes=1, precision="highest"), u)
        return jnp.tensordot(weights.astype(u.dtype), u, axes=1, precision="highest")

    return jax.tree.map(leaf, updates)


def leaves_by_path(tree: PyTree, parameters: str) -> dict[str, Array]:
    """The leaves of `tree` with the text `parameters` in their path, by path, in the order of the tree.

    Raises `ValueError` if there are none, unless `tree` is empty.
    """
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    chosen = {path: leaf for path, leaf in leaves.items() if parameters in path}
    if leaves and not chosen:
        paths = ", ".join(leaves)
        raise ValueError(f'parameters: must be part of the path of a parameter, got "{parameters}"; paths are {paths}')
    return chosen


def squared_norms(updates: Updates) -> Float[Array, " K"]:
    """Squared norm of each update."""
    square = lambda u: jnp.sum(jnp.square(u.astype(jnp.float32)), axis=tuple(range(1, u.ndim)))
    return jnp.sum(jnp.stack([square(u) for u in jax.tree.leaves(updates)]), axis=0)


def squared_norm(update: PyTree) -> Float[Array, ""]:
    """Squared norm of one update."""
    return squared_norms(jax.tree.map(lambda a: a[None], update))[0]


def inner_products(updates: Updates, direction: PyTree) -> Float[Array, " K"]:
    """Inner products of `updates` with one `direction`."""

    def leaf(u: Array, d: Array) -> Array:
        return jnp.matmul(_rows(u), d.reshape(-1).astype(jnp.float32), precision="highest")

    return jnp.sum(jnp.stack(jax.tree.leaves(jax.tree.map(leaf, updates, direction))), axis=0)


def gram_matrix(updates: Updates) -> Float[Array, "K K"]:
    """Inner products of all pairs of `updates`."""

    def leaf(u: Array) -> Array:
        rows = _rows(u)
        return jnp.matmul(rows, rows.T, precision="highest")

    return jnp.sum(jnp.stack([leaf(u) for u in jax.tree.leaves(updates)]), axis=0)


def squared_distances(gram: Float[Array, "K K"]) -> Float[Array, "K K"]:
    """Squared distances of all pairs, from their inner products `gram`."""
    norms = jnp.diagonal(gram)
    return jnp.maximum(norms[:, None] + norms[None, :] - 2 * gram, 0.0)


def distinct_pairs(mask: Bool[Array, " K"]) -> Bool[Array, "K K"]:
    """The pairs of two different clients in `mask`."""
    return mask[:, None] & mask[None, :] & ~jnp.eye(mask.size, dtype=bool)


def sum_of_nearest(
    distances: Float[Array, "K K"], mask: Bool[Array, " K"], count: Int[Array, ""]
) -> Float[Array, " K"]:
    """For each client in `mask`, the sum of the `count` smallest `distances` to others in the mask."""
    nearest = jnp.sort(jnp.where(distinct_pairs(mask), distances, jnp.inf), axis=1)
    return jnp.sum(jnp.where(jnp.arange(mask.size)[None, :] < count, nearest, 0.0), axis=1)


def ravel_updates(updates: Updates) -> Float[Array, "K d"]:
    """`updates` as one float32 matrix over all d parameters."""
    return jnp.concatenate([_rows(u) for u in jax.tree.leaves(updates)], axis=1)


def unravel_update(row: Float[Array, " d"], updates: Updates) -> PyTree:
    """`row` as a pytree like one of the `updates`; integers are rounded."""
    leaves, structure = jax.tree.flatten(updates)
    ends = [sum(u[0].size for u in leaves[: i + 1]) for i in range(len(leaves))]
    parts = zip(jnp.split(row, ends[:-1]), leaves, strict=True)
    return jax.tree.unflatten(structure, [cast_like(part, u).reshape(u.shape[1:]) for part, u in parts])


def _rows(u: Shaped[Array, "K ..."]) -> Float[Array, "K d"]:
    """A leaf as float32 rows."""
    return u.reshape(u.shape[0], -1).astype(jnp.float32)
