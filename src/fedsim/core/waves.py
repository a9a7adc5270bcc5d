"""Samples cohorts, and maps functions of one client over them in waves.

Clients differ in size, and `vmap` over all of them runs each for as long as the largest. So clients come sorted by size
and are cut into waves of `width`; a wave runs only as long as its own largest client: `lax.map` over waves, `vmap`
inside one. Width 1 is a plain loop, width K a single `vmap`: one knob from CPU to accelerator. Several devices share
the waves of a cohort.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Int

from fedsim.core.types import Array, ClientData, ClientSlice, PyTree

DRAWS_MULTIPLE = 1024
"""On a CPU, XLA takes several times as long to draw a number of random numbers that is no multiple of some 64."""


def sample_cohort(key: Array, num_examples: Int[Array, " N"], cohort_size: int) -> Int[Array, " K"]:
    """Draws `cohort_size` client ids uniformly without replacement from those with `num_examples` > 0.

    If fewer have examples, clients without any fill the cohort. These are the `top_k` of uniforms: a permutation of a
    million clients costs a hundred times more.
    """
    num_clients = num_examples.size
    draws = jax.random.uniform(key, (-(-num_clients // DRAWS_MULTIPLE) * DRAWS_MULTIPLE,))[:num_clients]
    return jax.lax.top_k(jnp.where(num_examples > 0, draws, -1.0), cohort_size)[1]


def by_size(data: ClientData, client_ids: Array) -> ClientSlice:
    """The clients `client_ids` [K], largest first."""
    client_ids = client_ids[jnp.argsort(-data.num_examples[client_ids])]
    return ClientSlice(client_ids, data.offsets[client_ids], data.num_examples[client_ids])


def drop_out(clients: ClientSlice, dropout_rate: float, key: Array) -> Array:
    """Which `clients` [K] have examples and answer, [K] bool: each drops out with probability `dropout_rate`."""
    valid = clients.num_examples > 0
    if dropout_rate == 0:
        return valid
    client_keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(clients.client_id)
    return valid & (jax.vmap(jax.random.uniform)(client_keys) >= dropout_rate)


def map_clients(client_fn: Callable[..., PyTree], clients: PyTree, width: int, axis: str | None = None) -> PyTree:
    """Maps `client_fn(*clients)` of one client over the leading axis [K] of `clients`, in waves of `width`.

    `clients` is a tuple that begins with a `ClientSlice` [K], largest first. Results are stacked [K, ...]. `axis` names
    the devices of a mesh (inside `shard_map`) that share the waves; all of them get all results.
    """
    num_clients = jax.tree.leaves(clients)[0].shape[0]
    run_wave = jax.vmap(lambda args: client_fn(*args))
    devices = () if axis is None else (jax.lax.axis_size(axis),)
    width = min(width, -(-num_clients // math.prod(devices)))
    if width == num_clients:
        return run_wave(clients)
    shape = (-(-num_clients // math.prod((*devices, width))), *devices, width)
    waves = _cut(clients, shape)
    results = jax.lax.map(run_wave, waves if axis is None else _deal(waves, axis))
    return _join(results if axis is None else _collect(results, axis), num_clients, len(shape))


def _cut(clients: PyTree, shape: tuple[int, ...]) -> PyTree:
    """`clients` [K, ...] as [*shape, ...]; the wave of the smallest is padded with clients without examples."""
    pad = lambda a: jnp.pad(a, [(0, math.prod(shape) - a.shape[0]), *[(0, 0)] * (a.ndim - 1)])
    return jax.tree.map(lambda a: pad(a).reshape(*shape, *a.shape[1:]), clients)


def _join(results: PyTree, num_clients: int, num_axes: int) -> PyTree:
    """The inverse of `_cut`: merges the first `num_axes` axes and drops the padding."""
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[num_axes:])[:num_clients], results)


def _deal(waves: PyTree, axis: str) -> PyTree:
    """This device's waves [turns, width, ...] out of [turns, devices, width, ...].

    Waves are dealt in serpentine order, so that every device gets about the same work: in every second turn the last
    device gets the largest wave.
    """
    turns = jnp.arange(jax.tree.leaves(waves)[0].shape[0])
    device, last = jax.lax.axis_index(axis), jax.lax.axis_size(axis) - 1
    place = jnp.where(turns % 2 == 0, device, last - device)
    return jax.tree.map(lambda a: a[turns, place], waves)


def _collect(results: PyTree, axis: str) -> PyTree:
    """The inverse of `_deal`: the results [turns, width, ...] of all devices as [turns, devices, width, ...]."""
    results = jax.lax.all_gather(results, axis, axis=1)
    return jax.tree.map(lambda a: a.at[1::2].set(a[1::2, ::-1]), results)
