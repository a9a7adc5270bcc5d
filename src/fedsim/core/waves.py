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

from fedsim.core.draws import bits_at, draws_by_threefry
from fedsim.core.types import Array, ClientData, ClientSlice, PyTree

BLOCK = 256
"""Clients of a block, of which only the largest draw is kept at first."""
PART = 1 << 20
"""Clients whose draws are computed at a time: few enough for a processor's cache, enough for an accelerator."""
MIN_CLIENTS_BY_BLOCKS = 1 << 18
"""The draws of fewer clients fit into a processor's cache, and are not drawn by blocks."""
MIN_BLOCKS_SKIPPED = 16
"""A cohort is drawn by blocks only if there are this many blocks for each of its clients."""


def sample_cohort(key: Array, num_examples: Int[Array, " N"], cohort_size: int) -> Int[Array, " K"]:
    """Draws `cohort_size` client ids uniformly without replacement from those with `num_examples` > 0.

    If fewer have examples, clients without any fill the cohort. These are the `top_k` of uniforms: a permutation of a
    million clients costs a hundred times more.
    """
    min_clients = max(MIN_CLIENTS_BY_BLOCKS, MIN_BLOCKS_SKIPPED * cohort_size * BLOCK)
    if num_examples.size >= min_clients and draws_by_threefry(key):
        return _top_draws(key, num_examples, cohort_size)
    draws = jax.random.uniform(key, num_examples.shape)
    return jax.lax.top_k(jnp.where(num_examples > 0, draws, -1.0), cohort_size)[1]


def _top_draws(key: Array, num_examples: Array, cohort_size: int) -> Array:
    """The same clients [K] in the same order, without an array of all draws.

    All are in the K blocks with the largest maxima, the first ones of equal maxima: each of these blocks has a client
    that precedes those of other blocks. So the draws are computed twice: for the maxima, and again in these blocks.
    """

    def draw(client_ids: Array, num_examples: Array) -> Array:
        uniform_bits = bits_at(key, client_ids) >> 9  # those that `jax.random.uniform` uses
        return jnp.where(num_examples > 0, uniform_bits.astype(jnp.int32), -1)

    def block_maxima(part: Array) -> Array:
        start = part * part_size
        draws = draw(start + jnp.arange(part_size), jax.lax.dynamic_slice(num_examples, (start,), (part_size,)))
        return jnp.max(draws.reshape(-1, BLOCK), axis=1)

    num_clients = num_examples.size
    num_parts = max(1, num_clients // PART)
    part_size = num_clients // num_parts // BLOCK * BLOCK
    maxima = jax.lax.map(block_maxima, jnp.arange(num_parts)).reshape(-1)
    blocks = jnp.sort(jax.lax.top_k(maxima, cohort_size)[1])
    in_blocks = (blocks[:, None] * BLOCK + jnp.arange(BLOCK)[None]).reshape(-1)
    candidates = jnp.concatenate([in_blocks, jnp.arange(num_parts * part_size, num_clients)])
    return candidates[jax.lax.top_k(draw(candidates, num_examples[candidates]), cohort_size)[1]]


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
    if axis is None:
        width = min(width, num_clients)
        if width == num_clients:
            return run_wave(clients)
        waves = _cut(clients, (-(-num_clients // width), width))
        return _join(jax.lax.map(run_wave, waves), num_clients, num_axes=2)
    num_devices = jax.lax.axis_size(axis)
    width = min(width, -(-num_clients // num_devices))
    if width == num_clients:
        return run_wave(clients)
    waves = _deal(_cut(clients, (-(-num_clients // (width * num_devices)), num_devices, width)), axis)
    return _join(_collect(jax.lax.map(run_wave, waves), axis), num_clients, num_axes=3)


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
