"""Runs the functions of `client.py` over many clients, in waves.

Clients differ in size, and `vmap` over all of them runs everybody for as long as the largest. So clients come sorted by
size, are cut into waves of `width`, and a wave runs only as long as its own largest: `lax.map` over the waves, `vmap`
inside one. Width 1 is a plain loop, width K one `vmap`: one knob from CPU to accelerator. Several devices take turns.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedsim.types import Array, Client, ClientData, PyTree


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


def map_clients(client_fn: Callable[[Client], PyTree], clients: Client, width: int, axis: str | None = None) -> PyTree:
    """`client_fn` over `clients` [K] (largest first) in waves of `width`; the results are stacked [K, ...].

    `axis` names the devices of a mesh (inside `shard_map`) to which the waves are dealt, in turns that go to and fro so
    that each device has as much to do; all get all results.
    """
    num_clients = clients.client_id.shape[0]
    num_devices = 1 if axis is None else jax.lax.axis_size(axis)
    width = min(width, -(-num_clients // num_devices))
    if width == num_clients:
        return jax.vmap(client_fn)(clients)
    num_turns = -(-num_clients // (width * num_devices))
    shape = (num_turns, num_devices, width)
    padding = math.prod(shape) - num_clients  # clients of count 0 at the end, in the wave of the smallest
    waves = jax.tree.map(lambda a: jnp.pad(a, (0, padding)).reshape(shape), clients)
    turns, device = jnp.arange(num_turns), 0 if axis is None else jax.lax.axis_index(axis)
    place = jnp.where(turns % 2 == 0, device, num_devices - 1 - device)  # of each turn's wave
    results = jax.lax.map(jax.vmap(client_fn), jax.tree.map(lambda a: a[turns, place], waves))
    if axis is not None:  # [turns, width, ...] to [turns, devices, width, ...]
        results = jax.lax.all_gather(results, axis, axis=1)
        results = jax.tree.map(lambda a: a.at[1::2].set(a[1::2, ::-1]), results)
    return jax.tree.map(
        lambda a: a.reshape(math.prod(shape), *a.shape[2 + (axis is not None) :])[:num_clients], results
    )
