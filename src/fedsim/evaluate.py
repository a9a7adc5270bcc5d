"""Test metrics of a model, batch by batch."""

import jax
import jax.numpy as jnp

from fedsim.types import Array, Metrics, PyTree, Task


def evaluate(task: Task, params: PyTree, x: Array, y: Array, batch_size: int = 1000) -> Metrics:
    """Metrics of `params` summed over the examples `x` [T, *feature], `y` [T], `batch_size` at a time."""
    x, y = jnp.asarray(x), jnp.asarray(y)
    num_examples = x.shape[0]
    batch_size = min(batch_size, num_examples)

    def batch(start: Array) -> Metrics:
        index = start + jnp.arange(batch_size)
        clipped = jnp.minimum(index, num_examples - 1)
        return task.metrics(params, x[clipped], y[clipped], index < num_examples)

    parts = jax.lax.map(batch, jnp.arange(0, num_examples, batch_size))
    return jax.tree.map(jnp.sum, parts)
