"""Arguments of `fedsim.aggregators.apply` as arrays: what users have in Python, checked."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fedsim.core.settings import MAX_INT
from fedsim.core.types import Array, PyTree, Variables
from fedsim.errors import reason

VALUES = {"num_examples": (MAX_INT, "integers >= 0 with a sum below 2^31"), "valid": (1, "true or false")}
"""The largest value of a vector of whole numbers, and its values in words."""


def to_vector(name: str, value: ArrayLike, size: int) -> Array | np.ndarray:
    """`value` as an array [size] that has values as they are needed under `name`; values of tracers are not checked."""
    array = to_array(name, value)
    if array.shape != (size,):
        raise ValueError(f"{name}: must have shape ({size},), got {array.shape}")
    if isinstance(array, jax.core.Tracer):
        return array
    numbers = np.asarray(array)
    if name in VALUES:
        limit, needed = VALUES[name]
        with np.errstate(invalid="ignore"):  # infinity has no remainder
            is_wrong = (np.mod(numbers, 1) != 0) | (numbers < 0) | (numbers > limit)
        if is_wrong.any():
            raise ValueError(f"{name}: must be {needed}, got {numbers[is_wrong][0]:g}")
        if name == "num_examples":
            if (total := numbers.sum(dtype=np.float64)) > limit:
                raise ValueError(f"{name}: must be {needed}, got {total:g}; divide all by the same number")
            return numbers.astype(np.int32)
    return array


def to_array(name: str, value: Any) -> Array | np.ndarray:
    """`value` as an array of real numbers; of NumPy, unless it is one of JAX or contains some."""
    leaves = jax.tree.leaves(value)
    if any(map(np.ma.is_masked, leaves)):
        raise ValueError(f"{name}: must have no masked values; leave such clients out, or mark them by `valid`")
    try:
        has_jax = any(isinstance(leaf, jax.Array) for leaf in leaves)
        array = jnp.asarray(value) if has_jax else np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: must be an array of numbers: {reason(error)}") from None
    if not any(jnp.issubdtype(array.dtype, kind) for kind in (np.floating, np.integer, np.bool_)):
        raise ValueError(f"{name}: must be an array of real numbers, got {array.dtype}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def stack_clients(updates: PyTree) -> PyTree:
    """A list of equal pytrees, one for each client, as one pytree; other updates as they are."""
    if type(updates) not in (list, tuple) or not updates:
        return updates
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(updates)]
    if not any(shapes) and isinstance(updates[0], float | int | list | tuple | np.generic):  # nested lists of numbers
        return to_array("updates", updates)
    first, *others = ((jax.tree.structure(u), [np.shape(leaf) for leaf in jax.tree.leaves(u)]) for u in updates)
    if any(other != first for other in others):
        return updates
    are_layers = len({shape[:1] for shape in shapes}) == 1 and any(len(shape) > 1 for shape in shapes)
    if are_layers and (isinstance(updates, tuple) or not others):
        return updates
    if are_layers:
        raise ValueError(
            f"updates: must be arrays [K, ...], got a list of {len(updates)} equal pytrees, which may be clients or "
            "layers; stack clients by jax.tree.map(lambda *u: jnp.stack(u), *updates), or use a tuple of layers"
        )
    return jax.tree.map(lambda *leaves: to_array("updates", list(leaves)), *updates)


def to_variables(name: str, tree: PyTree) -> Variables:
    """`tree` as `Variables` of arrays; only statistics may be integers."""
    if isinstance(tree, Variables):
        return jax.tree.map(lambda leaf: to_array(name, leaf), tree)
    if type(tree) in (list, tuple) and all(np.ndim(leaf) == 0 for leaf in jax.tree.leaves(tree)):
        tree = to_array(name, tree)

    def to_floats(leaf: ArrayLike) -> Array | np.ndarray:
        array = to_array(name, leaf)
        least = jnp.float16 if jnp.issubdtype(array.dtype, jnp.floating) else jnp.float32
        return array.astype(jnp.promote_types(array.dtype, least))

    return Variables(jax.tree.map(to_floats, tree))
