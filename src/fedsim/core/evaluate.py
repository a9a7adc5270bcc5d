"""Test metrics of a model, batch by batch."""

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Shaped

from fedsim.core import require
from fedsim.core.client import lockstep_max, num_batches, take_batch
from fedsim.core.contracts import Task
from fedsim.core.options import check_labels
from fedsim.core.types import Array, ClientData, ClientSlice, Metrics, Variables

TestArray: TypeAlias = Shaped[Array | np.ndarray, "T ..."]

BATCH_SIZE = 1000  # examples that are evaluated at a time
PERSONAL_BATCH_SIZE = 32  # of one client
PERCENTILES = (10, 50, 90)  # over clients


def evaluate(task: Task, variables: Variables, x: TestArray, y: TestArray, batch_size: int = BATCH_SIZE) -> Metrics:
    """Metrics of the model summed over the examples `x`, `y`, `batch_size` at a time.

    Raises `ValueError` if there are no examples, or not as many targets, or labels without an output of the model;
    `AssertionError` if `task` or `variables` is of another type.

    >>> import flax.linen as nn, jax, numpy as np, fedsim
    >>> x, y = np.eye(3, dtype=np.float32), np.arange(3)
    >>> task = fedsim.classification(nn.Dense(3), x[0])
    >>> int(fedsim.evaluate(task, task.init(jax.random.key(0)), x, y).num_examples)
    3
    """
    require.instance(task, Task, "task", "; use fedsim.classification(module, example)")
    require.instance(variables, Variables, "variables", "; use state.variables, or fedsim.Variables(params)")
    x, y = jnp.asarray(x), jnp.asarray(y)
    num_examples = x.shape[0]
    if not num_examples:
        raise ValueError("x: must have examples, got none")
    if batch_size < 1:
        raise ValueError(f"batch_size: must be at least 1, got {batch_size}")
    if y.shape[0] != num_examples:
        raise ValueError(f"y: must have a target for each of {num_examples} examples, got {y.shape[0]}")
    check_labels(y, task)
    batch_size = min(batch_size, num_examples)

    def batch_metrics(start: Array) -> Metrics:
        index = start + jnp.arange(batch_size)
        clipped = jnp.minimum(index, num_examples - 1)
        return task.metrics(variables, x[clipped], y[clipped], index < num_examples)

    batches = jax.lax.map(batch_metrics, jnp.arange(0, num_examples, batch_size))
    return jax.tree.map(jnp.sum, batches)


def evaluate_clients(
    task: Task, variables: Variables, x: TestArray, y: TestArray, clients: TestArray, num_clients: int
) -> Metrics:
    """Metrics [num_clients] of the model, summed over each client's examples; `clients` are the owners."""
    x, y, clients = jnp.asarray(x), jnp.asarray(y), jnp.asarray(clients)

    def example_metrics(example: tuple[Array, Array]) -> Metrics:
        x, y = example
        return task.metrics(variables, x[None], y[None], jnp.ones(1, bool))

    metrics = jax.lax.map(example_metrics, (x, y), batch_size=min(BATCH_SIZE, x.shape[0]))
    return jax.tree.map(lambda values: jax.ops.segment_sum(values, clients, num_clients), metrics)


def by_client(x: Array, y: Array, clients: Array, num_clients: int) -> ClientData:
    """Test examples sorted by the clients [T] that they belong to; those of clients from `num_clients` on come last."""
    order, sizes = jnp.argsort(clients), jnp.bincount(clients, length=num_clients)
    return ClientData(x[order], y[order], jnp.cumsum(sizes) - sizes, sizes, jnp.zeros(num_clients, bool))


def evaluate_client(
    task: Task, variables: Variables, data: ClientData, client_id: Int[Array, ""], batch_size: int = BATCH_SIZE
) -> Metrics:
    """Metrics of the model summed over the examples of client `client_id` in `data`."""
    client = ClientSlice(client_id, data.offsets[client_id], data.num_examples[client_id])
    batch_size = min(batch_size, data.y.shape[0])

    def batch_metrics(i: Array) -> Metrics:
        return task.metrics(variables, *take_batch(data, client, i * batch_size + jnp.arange(batch_size)))

    zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(batch_metrics, jnp.int32(0)))
    steps = lockstep_max(num_batches(client.num_examples, batch_size))
    return jax.lax.fori_loop(0, steps, lambda i, total: jax.tree.map(jnp.add, total, batch_metrics(i)), zeros)


def accuracy_percentiles(num_correct: np.ndarray, num_examples: np.ndarray) -> np.ndarray:
    """The 10th, 50th and 90th percentile [..., 3] of accuracy [..., C] over the clients that have test examples."""
    has_test = num_examples.reshape(-1, num_examples.shape[-1])[0] > 0
    accuracy = num_correct[..., has_test] / num_examples[..., has_test]
    return np.moveaxis(np.percentile(accuracy, PERCENTILES, axis=-1), 0, -1)
