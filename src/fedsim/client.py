"""What one client does in a round. There is no client axis in this file: batching is the caller's `vmap`."""

from typing import TypeVar

import jax
import jax.numpy as jnp
import optax
from jax.custom_batching import custom_vmap

from fedsim.types import Array, Client, ClientData, PyTree, Task

Count = TypeVar("Count", int, Array)


@custom_vmap
def lockstep_max(steps: Array) -> Array:
    """`steps`; under `vmap`, at any nesting, the largest of the clients that run in lockstep, unbatched.

    A loop whose bound is batched becomes a select over its whole carry, at every step; this keeps it a plain loop.
    """
    return steps


@lockstep_max.def_vmap
def _lockstep_max_rule(axis_size: int, in_batched: list[bool], steps: Array) -> tuple[Array, bool]:
    del axis_size
    return lockstep_max(jnp.max(steps) if in_batched[0] else steps), False


def num_batches(count: Count, batch_size: int) -> Count:
    """Batches in which `count` examples go through, the last one possibly partial."""
    return (count + batch_size - 1) // batch_size


def take_batch(data: ClientData, client: Client, positions: Array) -> tuple[Array, Array, Array]:
    """The client's examples at `positions` [B] as (x, y, mask); the mask is False past the client's last example.

    What is masked is the client's own first example, so that nobody computes with somebody else's NaN.
    """
    mask = positions < client.num_examples
    index = client.offset + jnp.where(mask, positions, 0)
    return data.x[index], data.y[index], mask


def client_loss(task: Task, params: PyTree, data: ClientData, client: Client, batch_size: int) -> Array:
    """Mean training loss of `params` over all m_i examples of the client: the paper's empirical risk. 0 without any."""

    def step(i: Array, loss_sum: Array) -> Array:
        batch = take_batch(data, client, i * batch_size + jnp.arange(batch_size))
        return loss_sum + task.metrics(params, *batch).loss_sum.astype(loss_sum.dtype)

    steps = lockstep_max(num_batches(client.num_examples, batch_size))
    loss_sum = jax.lax.fori_loop(0, steps, step, jnp.zeros((), jnp.float32))
    return loss_sum / jnp.maximum(client.num_examples, 1)


def local_sgd(
    task: Task,
    optimizer: optax.GradientTransformation,
    params: PyTree,
    data: ClientData,
    client: Client,
    key: Array,
    *,
    epochs: int,
    batch_size: int,
    max_count: int,
    micro_batch: int = 0,
) -> PyTree:
    """The client's update, local minus broadcast parameters, after `epochs` passes of mini-batch SGD (Algorithm 1).

    Examples are reshuffled each epoch; the last, partial batch is kept (the loss is a mean over its real examples).
    `max_count` bounds the clients' sizes, statically; `micro_batch` is that of `batch_gradient`. Epochs are the outer
    loop: a reshuffle by `cond` inside one flat loop would become a sort at every step under `vmap`.
    """
    steps = lockstep_max(num_batches(client.num_examples, batch_size))
    num_slots = num_batches(max_count, batch_size) * batch_size

    def epoch(e: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        shuffle_key, steps_key = jax.random.split(jax.random.fold_in(key, e))
        order = random_order(shuffle_key, client.num_examples, num_slots)

        def step(i: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            positions = jax.lax.dynamic_slice(order, (i * batch_size,), (batch_size,))
            step_key = jax.random.fold_in(steps_key, i)
            grads = batch_gradient(task, carry[0], data, client, positions, step_key, micro_batch)
            updates, opt_state = optimizer.update(grads, carry[1], carry[0])
            moved = optax.apply_updates(carry[0], updates), opt_state
            # A client that is through its examples waits for the others of its wave.
            active = i * batch_size < client.num_examples
            return jax.tree.map(lambda new, old: jnp.where(active, new, old), moved, carry)

        return jax.lax.fori_loop(0, steps, step, carry)

    trained, _ = jax.lax.fori_loop(0, epochs, epoch, (params, optimizer.init(params)))
    return jax.tree.map(jnp.subtract, trained, params)


def batch_gradient(
    task: Task, params: PyTree, data: ClientData, client: Client, positions: Array, key: Array, micro_batch: int = 0
) -> PyTree:
    """The gradient of the mean training loss over the client's examples at `positions` [B].

    `micro_batch` examples at a time, if it is neither 0 nor B or more: what stays in a processor's cache is faster, it
    needs less memory, and a partial batch costs no more than its own micro-batches. The sum of their gradients,
    weighted by their examples, is the batch's; but each draws its own dropout and augmentation.
    """
    batch_size = positions.shape[0]
    if not 0 < micro_batch < batch_size:
        return jax.grad(task.loss)(params, *take_batch(data, client, positions), key)
    padded = jnp.pad(positions, (0, -batch_size % micro_batch), constant_values=jnp.iinfo(positions.dtype).max)
    in_batch = jnp.sum(positions < client.num_examples)

    def add(j: Array, total: PyTree) -> PyTree:
        x, y, mask = take_batch(data, client, jax.lax.dynamic_slice(padded, (j * micro_batch,), (micro_batch,)))
        grads = jax.grad(task.loss)(params, x, y, mask, jax.random.fold_in(key, j))
        share = jnp.sum(mask) / jnp.maximum(in_batch, 1)
        return jax.tree.map(lambda t, g: t + share.astype(g.dtype) * g, total, grads)

    num_micro = lockstep_max(num_batches(in_batch, micro_batch))
    return jax.lax.fori_loop(0, num_micro, add, jax.tree.map(jnp.zeros_like, params))


def random_order(key: Array, count: Array, num_slots: int) -> Array:
    """A uniform permutation of 0..count-1, followed by the positions from `count` to `num_slots` - 1."""
    slots = jnp.arange(num_slots)
    draws = jnp.where(slots < count, jax.random.uniform(key, (num_slots,)), 1.0 + slots)
    return jnp.argsort(draws)
