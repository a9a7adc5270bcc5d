"""How one client trains in a round. There is no client axis in this file: batching is the caller's `vmap`."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

from fedsim.core.client import batch_gradient, lockstep_max, num_batches
from fedsim.core.contracts import Correction, Task
from fedsim.core.options import TrainingOptions
from fedsim.core.types import Array, ClientData, ClientSlice, PyTree, Variables

MAX_PACKED_LENGTH = 512  # positions that fit into the bits of a random integer that a float32 does not use
Carry = tuple[Variables, PyTree]  # the model and the optimizer's state


@dataclass(frozen=True)
class LocalSGD:
    """Mini-batch training of one client in a round; static.

    Examples are reshuffled each epoch; the last, partial batch is kept (its loss is a mean over its real examples).
    With `options.steps`, a client stops after that many, within its first epoch or a later one.
    """

    task: Task
    """The model with its loss."""
    optimizer: optax.GradientTransformation
    """Turns gradients into steps."""
    options: TrainingOptions
    """Batches, epochs and steps."""

    @property
    def batch_size(self) -> int:
        """Examples of a batch: no more than the largest client fills."""
        return min(self.options.batch_size, self.options.max_num_examples)

    def train(
        self,
        start: Variables,
        data: ClientData,
        client: ClientSlice,
        key: Array,
        correct: Correction | None = None,
        correct_step: Correction | None = None,
    ) -> Variables:
        """The model after E passes over the client's data, or after `steps` steps, from `start` (Algorithm 1).

        If `correct` is given, `correct(gradient, params)` replaces every gradient, and `correct_step(step, params)`
        every step of the optimizer.
        """

        num_steps = self.num_steps(client)
        steps_per_epoch = jnp.maximum(num_batches(client.num_examples, self.batch_size), 1)
        order = self._step_positions(client, num_steps, steps_per_epoch, key)

        def step(s: Array, carry: Carry) -> Carry:
            (params, _), opt_state = carry
            positions = jax.lax.dynamic_slice(order, (s * self.batch_size,), (self.batch_size,))
            _, steps_key = jax.random.split(jax.random.fold_in(key, s // steps_per_epoch))
            step_key = jax.random.fold_in(steps_key, s % steps_per_epoch)
            gradient, statistics = batch_gradient(
                self.task, carry[0], data, client, positions, step_key, self.options.micro_batch
            )
            gradient = gradient if correct is None else correct(gradient, params)
            update, opt_state = self.optimizer.update(gradient, opt_state, params)
            update = update if correct_step is None else correct_step(update, params)
            new = Variables(optax.apply_updates(params, update), statistics), opt_state
            # A client without steps left waits for the others of its wave.
            return jax.tree.map(lambda new, old: jnp.where(s < num_steps, new, old), new, carry)

        carry = start, self.optimizer.init(start.params)
        return jax.lax.fori_loop(0, lockstep_max(num_steps), step, carry)[0]

    def num_steps(self, client: ClientSlice) -> Array:
        """Steps [] that `train` takes."""
        if self.options.steps is None:
            return self.options.epochs * num_batches(client.num_examples, self.batch_size)
        return jnp.where(client.num_examples > 0, self.options.steps, 0)

    @property
    def _order_length(self) -> int:
        """Positions in the order of an epoch: those of the largest client's batches."""
        return num_batches(self.options.max_num_examples, self.batch_size) * self.batch_size

    def _step_positions(self, client: ClientSlice, num_steps: Array, steps_per_epoch: Array, key: Array) -> Array:
        """The positions of all steps' batches, one after another; positions past the last step are not used.

        They are precomputed, since clients of a wave have epochs of different lengths: a reshuffle by `cond` in the
        loop over steps would sort at every step under `vmap`. Each epoch's order overwrites the unused end of the one
        before. No more of it is drawn than all steps need.
        """
        num_epochs = -(-num_steps // steps_per_epoch)
        if (most := self.options.steps) is None:
            most = self.options.epochs * self._order_length // self.batch_size
        num_positions = most * self.batch_size

        def epoch(e: Array, positions: Array) -> Array:
            shuffle_key, _ = jax.random.split(jax.random.fold_in(key, e))
            length = self._order_length
            order = random_order(shuffle_key, client.num_examples, length, min(num_positions, length))
            first = jnp.minimum(e, num_epochs) * steps_per_epoch * self.batch_size  # past the last epoch: unused
            return jax.lax.dynamic_update_slice(positions, order, (first,))

        empty = jnp.zeros(num_positions + self._order_length, jnp.int32)
        return jax.lax.fori_loop(0, lockstep_max(num_epochs), epoch, empty)


def random_order(key: Array, num_examples: Array, length: int, num_first: int | None = None) -> Array:
    """A uniform permutation of 0..num_examples-1, then the positions up to `length` - 1: [length] int32.

    With `num_first`, only its first entries: the same, but for a small part of a large order five times faster.
    """
    if length <= MAX_PACKED_LENGTH:
        return _packed_order(key, num_examples, length)[:num_first]
    positions = jnp.arange(length)
    draws = jnp.where(positions < num_examples, jax.random.uniform(key, (length,)), 1.0 + positions)
    if num_first is None or num_first == length:
        return jnp.argsort(draws)
    return jax.lax.top_k(-draws, num_first)[1]  # of equal draws the first one, like a sort


def _packed_order(key: Array, num_examples: Array, length: int) -> Array:
    """The order of `random_order`, by a sort of integers that is four times faster.

    A uniform float32 has the 23 upper bits of a random integer. The position takes the place of the 9 lower ones, so
    that of equal draws the first one comes first.
    """
    positions = jnp.arange(length, dtype=jnp.uint32)
    position_bits = jnp.uint32(MAX_PACKED_LENGTH - 1)
    draws = jnp.where(positions < num_examples, jax.random.bits(key, (length,)), ~jnp.uint32(0))
    return (jnp.sort((draws & ~position_bits) | positions) & position_bits).astype(jnp.int32)
