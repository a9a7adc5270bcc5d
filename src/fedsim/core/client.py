"""What one client does in a round. There is no client axis in this file: batching is the caller's `vmap`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp
import optax
from jax.custom_batching import custom_vmap

from fedsim.core.types import (
    Algorithm,
    Array,
    Client,
    ClientData,
    LocalTraining,
    PyTree,
    Task,
    Trained,
    Variables,
)

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


def client_loss(task: Task, variables: Variables, data: ClientData, client: Client, batch_size: int) -> Array:
    """Mean training loss of the model over the client's m_i examples: the paper's empirical risk. 0 without any."""

    def step(i: Array, loss_sum: Array) -> Array:
        batch = take_batch(data, client, i * batch_size + jnp.arange(batch_size))
        return loss_sum + task.metrics(variables, *batch).loss_sum.astype(loss_sum.dtype)

    steps = lockstep_max(num_batches(client.num_examples, batch_size))
    loss_sum = jax.lax.fori_loop(0, steps, step, jnp.zeros((), jnp.float32))
    return loss_sum / jnp.maximum(client.num_examples, 1)


@dataclass(frozen=True)
class LocalSGD:
    """Mini-batch SGD as a client does it in a round; everything in here is static.

    Examples are reshuffled each epoch; the last, partial batch is kept (the loss is a mean over its real examples).
    """

    task: Task
    optimizer: optax.GradientTransformation
    epochs: int  # E
    batch_size: int  # B
    max_count: int  # examples of the largest client
    micro_batch: int = 0  # as in `batch_gradient`

    def train(
        self,
        start: Variables,
        data: ClientData,
        client: Client,
        key: Array,
        correct: Callable[[PyTree, PyTree], PyTree] | None = None,
    ) -> Variables:
        """The model after E passes over the client's data from `start` (Algorithm 1).

        `correct(gradient, params)`, if given, is the gradient to use instead. Epochs are the outer loop: a reshuffle by
        `cond` inside one flat loop would become a sort at every step under `vmap`.
        """
        steps = lockstep_max(num_batches(client.num_examples, self.batch_size))
        num_slots = num_batches(self.max_count, self.batch_size) * self.batch_size

        def epoch(e: Array, carry: tuple[Variables, PyTree]) -> tuple[Variables, PyTree]:
            shuffle_key, steps_key = jax.random.split(jax.random.fold_in(key, e))
            order = random_order(shuffle_key, client.num_examples, num_slots)

            def step(i: Array, carry: tuple[Variables, PyTree]) -> tuple[Variables, PyTree]:
                (params, _), opt_state = carry
                positions = jax.lax.dynamic_slice(order, (i * self.batch_size,), (self.batch_size,))
                step_key = jax.random.fold_in(steps_key, i)
                gradient, statistics = batch_gradient(
                    self.task, carry[0], data, client, positions, step_key, self.micro_batch
                )
                gradient = gradient if correct is None else correct(gradient, params)
                updates, opt_state = self.optimizer.update(gradient, opt_state, params)
                moved = Variables(optax.apply_updates(params, updates), statistics), opt_state
                # A client that is through its examples waits for the others of its wave.
                active = i * self.batch_size < client.num_examples
                return jax.tree.map(lambda new, old: jnp.where(active, new, old), moved, carry)

            return jax.lax.fori_loop(0, steps, step, carry)

        carry = start, self.optimizer.init(start.params)
        return jax.lax.fori_loop(0, self.epochs, epoch, carry)[0]

    def num_steps(self, client: Client) -> Array:
        """Steps that `train` makes."""
        return self.epochs * num_batches(client.num_examples, self.batch_size)


def plain_sgd() -> Algorithm:
    """The local training of FedAvg: SGD from the broadcast model; nobody remembers anything.

    McMahan, Moore, Ramage, Hampson, Aguera y Arcas: "Communication-Efficient Learning of Deep Networks from
    Decentralized Data", AISTATS 2017, https://arxiv.org/abs/1602.05629
    """

    def train(local: LocalTraining, memory: PyTree, shared: PyTree) -> Trained:
        del shared
        return Trained(local.sgd(None), memory, ())

    return Algorithm(lambda params: ((), ()), train, lambda shared, messages, valid, num_clients: shared)


def gradient_of(task: Task) -> Callable[..., tuple[PyTree, PyTree]]:
    """params, statistics, x [B, ...], y [B, ...], mask [B], key -> gradient of the training loss, new statistics."""

    def loss(params: PyTree, statistics: PyTree, x: Array, y: Array, mask: Array, key: Array) -> tuple[Array, PyTree]:
        return task.loss(Variables(params, statistics), x, y, mask, key)

    return jax.grad(loss, has_aux=True)


def batch_gradient(
    task: Task,
    variables: Variables,
    data: ClientData,
    client: Client,
    positions: Array,
    key: Array,
    micro_batch: int = 0,
) -> tuple[PyTree, PyTree]:
    """The gradient of the mean training loss over the client's examples at `positions` [B], and the new statistics.

    `micro_batch` examples at a time, if it is neither 0 nor B or more: what stays in a processor's cache is faster, it
    needs less memory, and a partial batch costs no more than its own micro-batches. The sum of their gradients,
    weighted by their examples, is the batch's; but each draws its own dropout and augmentation, and moves the
    statistics by itself.
    """
    batch_size, gradient = positions.shape[0], gradient_of(task)
    if not 0 < micro_batch < batch_size:
        return gradient(*variables, *take_batch(data, client, positions), key)
    padded = jnp.pad(positions, (0, -batch_size % micro_batch), constant_values=jnp.iinfo(positions.dtype).max)
    in_batch = jnp.sum(positions < client.num_examples)

    def add(j: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        total, statistics = carry
        x, y, mask = take_batch(data, client, jax.lax.dynamic_slice(padded, (j * micro_batch,), (micro_batch,)))
        grads, moved = gradient(variables.params, statistics, x, y, mask, jax.random.fold_in(key, j))
        share = jnp.sum(mask) / jnp.maximum(in_batch, 1)
        added = jax.tree.map(lambda t, g: t + share.astype(g.dtype) * g, total, grads), moved
        if not jax.tree.leaves(statistics):
            return added
        # A client that is through this batch waits; what statistics make of no example at all may be NaN.
        return jax.tree.map(lambda new, old: jnp.where(share > 0, new, old), added, carry)

    num_micro = lockstep_max(num_batches(in_batch, micro_batch))
    return jax.lax.fori_loop(0, num_micro, add, (jax.tree.map(jnp.zeros_like, variables.params), variables.statistics))


def random_order(key: Array, count: Array, num_slots: int) -> Array:
    """A uniform permutation of 0..count-1, followed by the positions from `count` to `num_slots` - 1."""
    slots = jnp.arange(num_slots)
    draws = jnp.where(slots < count, jax.random.uniform(key, (num_slots,)), 1.0 + slots)
    return jnp.argsort(draws)
