"""Losses and gradients of one client. There is no client axis in this file: batching is the caller's `vmap`."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Float, Int, Shaped

from fedsim.core.contracts import Task
from fedsim.core.types import Array, ClientData, ClientSlice, PyTree, Variables

Integer = TypeVar("Integer", int, Array)


@custom_vmap
def lockstep_max(steps: Shaped[Array, ""]) -> Shaped[Array, ""]:
    """Returns `steps`; under `vmap`, at any nesting, the maximum over the clients in lockstep, unbatched.

    A loop with a batched bound becomes a select over its whole carry at every step; this keeps it a plain loop.
    """
    return steps


@lockstep_max.def_vmap
def _lockstep_max_rule(axis_size: int, in_batched: list[bool], steps: Array) -> tuple[Array, bool]:
    return lockstep_max(jnp.max(steps) if in_batched[0] else steps), False


def num_batches(num_examples: Integer, batch_size: int) -> Integer:
    """Number of batches that hold `num_examples` examples; the last one may be partial."""
    return (num_examples + batch_size - 1) // batch_size


def take_batch(data: ClientData, client: ClientSlice, positions: Int[Array, " B"]) -> tuple[Array, Array, Array]:
    """The client's examples at `positions` as (x, y, mask); the mask is False past the client's last example.

    Padding repeats the client's first example, so that it never reads another client's NaN.
    """
    mask = positions < client.num_examples
    index = client.offset + jnp.where(mask, positions, 0)
    return data.x[index], data.y[index], mask


def client_loss(
    task: Task, variables: Variables, data: ClientData, client: ClientSlice, batch_size: int
) -> Float[Array, ""]:
    """Mean training loss over the client's m_i examples, the paper's empirical risk; 0 without examples."""

    def step(i: Array, loss_sum: Array) -> Array:
        batch = take_batch(data, client, i * batch_size + jnp.arange(batch_size))
        return loss_sum + task.metrics(variables, *batch).loss_sum.astype(loss_sum.dtype)

    steps = lockstep_max(num_batches(client.num_examples, batch_size))
    loss_sum = jax.lax.fori_loop(0, steps, step, jnp.zeros((), jnp.float32))
    return loss_sum / jnp.maximum(client.num_examples, 1)


def loss_gradient(task: Task) -> Callable[..., tuple[PyTree, PyTree]]:
    """`(params, statistics, x [B, ...], y [B, ...], mask [B], key) -> (gradient of the loss, statistics)`."""

    def loss(params: PyTree, statistics: PyTree, x: Array, y: Array, mask: Array, key: Array) -> tuple[Array, PyTree]:
        return task.loss(Variables(params, statistics), x, y, mask, key)

    return jax.grad(loss, has_aux=True)


def batch_gradient(
    task: Task,
    variables: Variables,
    data: ClientData,
    client: ClientSlice,
    positions: Int[Array, " B"],
    key: Array,
    micro_batch: int = 0,
) -> tuple[PyTree, PyTree]:
    """Gradient of the mean training loss over the client's examples at `positions`, and the new statistics.

    With 0 < `micro_batch` < B, that many examples at a time: they stay in the processor's cache, need less memory, and
    a partial batch costs no more than its own micro-batches. The batch's gradient is the mean of theirs, weighted by
    examples; but each micro-batch draws its own dropout and augmentation and updates the statistics by itself.
    """
    batch_size, gradient = positions.shape[0], loss_gradient(task)
    if not 0 < micro_batch < batch_size:
        return gradient(*variables, *take_batch(data, client, positions), key)
    padded = jnp.pad(positions, (0, -batch_size % micro_batch), constant_values=jnp.iinfo(positions.dtype).max)
    in_batch = jnp.sum(positions < client.num_examples)

    def add(j: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        total, statistics = carry
        x, y, mask = take_batch(data, client, jax.lax.dynamic_slice(padded, (j * micro_batch,), (micro_batch,)))
        grads, new_statistics = gradient(variables.params, statistics, x, y, mask, jax.random.fold_in(key, j))
        share = jnp.sum(mask) / jnp.maximum(in_batch, 1)
        added = jax.tree.map(lambda t, g: t + share.astype(g.dtype) * g, total, grads), new_statistics
        if not jax.tree.leaves(statistics):
            return added
        # A client without examples left waits; statistics of no examples may be NaN.
        return jax.tree.map(lambda new, old: jnp.where(share > 0, new, old), added, carry)

    num_micro = lockstep_max(num_batches(in_batch, micro_batch))
    return jax.lax.fori_loop(0, num_micro, add, (jax.tree.map(jnp.zeros_like, variables.params), variables.statistics))
