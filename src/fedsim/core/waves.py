"""Runs the functions of `client.py` over many clients, in waves.

Clients differ in size, and `vmap` over all of them runs everybody for as long as the largest. So clients come sorted by
size, are cut into waves of `width`, and a wave runs only as long as its own largest: `lax.map` over the waves, `vmap`
inside one. Width 1 is a plain loop, width K one `vmap`: one knob from CPU to accelerator. Several devices share
the waves of a cohort.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedsim.core.types import Array, Client, ClientData, PyTree


def sample_cohort(key: Array, data: ClientData, cohort_size: int) -> Client:
    """`cohort_size` clients [K], uniform without replacement among those with examples, largest first.

    Where fewer have examples, clients with count 0 fill the cohort. A `top_k` of uniforms: a permutation of a million
    clients costs a hundred times more.
    """
    draws = jax.random.uniform(key, data.counts.shape)
    _, client_ids = jax.lax.top_k(jnp.where(data.counts > 0, draws, -1.0), cohort_size)
    return by_size(data, client_ids)


def by_size(data: ClientData, client_ids: Array) -> Client:
    """The clients named by `client_ids` [K], largest first."""
    client_ids = client_ids[jnp.argsort(-data.counts[client_ids])]
    return Client(client_ids, data.offsets[client_ids], data.counts[client_ids])


def map_clients(client_fn: Callable[..., PyTree], clients: PyTree, width: int, axis: str | None = None) -> PyTree:
    """`client_fn(*clients)`, one client at a time, over the leading axis [K] of `clients`, in waves of `width`.

    `clients` is a tuple whose first part is a `Client` [K], largest first. The results are stacked [K, ...]. `axis`
    names the devices of a mesh (inside `shard_map`) that share the waves; all of them get all results.
    """
    num_clients = jax.tree.leaves(clients)[0].shape[0]
    wave = jax.vmap(lambda args: client_fn(*args))
    if axis is None:
        width = min(width, num_clients)
        if width == num_clients:
            return wave(clients)
        waves = _cut(clients, (-(-num_clients // width), width))
        return _join(jax.lax.map(wave, waves), num_clients, num_axes=2)
    num_devices = jax.lax.axis_size(axis)
    width = min(width, -(-num_clients // num_devices))
    if width == num_clients:
        return wave(clients)
    own = _deal(_cut(clients, (-(-num_clients // (width * num_devices)), num_devices, width)), axis)
    return _join(_collect(jax.lax.map(wave, own), axis), num_clients, num_axes=3)


def _cut(clients: PyTree, shape: tuple[int, ...]) -> PyTree:
    """`clients` [K, ...] as [*shape, ...], filled up in the wave of the smallest with clients of count 0."""
    pad = lambda a: jnp.pad(a, [(0, math.prod(shape) - a.shape[0]), *[(0, 0)] * (a.ndim - 1)])
    return jax.tree.map(lambda a: pad(a).reshape(*shape, *a.shape[1:]), clients)


def _join(results: PyTree, num_clients: int, num_axes: int) -> PyTree:
    """The reverse of `_cut`: the first `num_axes` axes as one, without what was filled up."""
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[num_axes:])[:num_clients], results)


def _deal(waves: PyTree, axis: str) -> PyTree:
    """Of `waves` [turns, devices, width, ...] those of this device, [turns, width, ...].

    Turns go to and fro, as captains pick teams: in every second one the last device gets the largest wave, so that each
    has as much to do.
    """
    turns = jnp.arange(jax.tree.leaves(waves)[0].shape[0])
    device, last = jax.lax.axis_index(axis), jax.lax.axis_size(axis) - 1
    place = jnp.where(turns % 2 == 0, device, last - device)
    return jax.tree.map(lambda a: a[turns, place], waves)


def _collect(results: PyTree, axis: str) -> PyTree:
    """The reverse of `_deal`: the results [turns, width, ...] of all devices as [turns, devices, width, ...]."""
    results = jax.lax.all_gather(results, axis, axis=1)
    return jax.tree.map(lambda a: a.at[1::2].set(a[1::2, ::-1]), results)
