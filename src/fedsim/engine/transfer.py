"""Arrays between the host and devices, where some of these may belong to other processes.

Every process has the whole array on its host, and moves the parts of its own devices. `on_host` is collective: all
processes call it at the same place.
"""

from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from fedsim.core.types import PyTree


def put(tree: PyTree, sharding: Sharding) -> PyTree:
    """The arrays of `tree`, equal on the hosts of all processes, on the devices of `sharding`."""
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)
    return jax.tree.map(partial(_put_parts, sharding=sharding), tree)


def _put_parts(array: Any, sharding: Sharding) -> jax.Array:
    if isinstance(array, jax.Array) and jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_put_parts(jax.random.key_data(array), sharding))
    array = np.asarray(array)
    array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
    return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])


def on_host(tree: PyTree, replicated: Sharding) -> PyTree:
    """NumPy copies of the arrays of `tree` on the devices of `replicated`, a sharding with a copy on each device."""
    if replicated.is_fully_addressable:
        return jax.device_get(tree)
    return jax.tree.map(lambda a: np.asarray(a.addressable_data(0)), _gather(replicated)(tree))


@cache
def _gather(replicated: Sharding) -> Any:
    """A program that copies arrays to all devices."""
    return jax.jit(lambda tree: tree, out_shardings=replicated)


def local_copy(tree: PyTree) -> PyTree:
    """Arrays with a copy on each device, as this process's copies, where others have some, too."""
    return jax.tree.map(lambda a: a if a.is_fully_addressable else a.addressable_data(0), tree)
