"""Tries out a plug-in model on a few examples: its results must depend neither on padding nor on other examples."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.schema import Config
from fedsim.core.types import FederatedDataset, Metrics, PyTree, Variables
from fedsim.engine.memory import tree_bytes
from fedsim.engine.model import cached_by_program, make_task, model_errors, model_shapes
from fedsim.errors import ConfigError

MAX_BYTES = 2**27  # larger models are not tried out
NUM_ROWS = 3  # of a batch
FAST_COMPILING: dict[str, Any] = {"xla_backend_optimization_level": 0}  # an option of the CPU


@cached_by_program()
def check_rows(config: Config, dataset: FederatedDataset) -> None:
    """Raises `ConfigError` if an example's results depend on padding, or in evaluation on the rest of its batch.

    In training, only if there is padding. Parameters are random numbers, because initial ones may be zero.
    """
    task, shapes, name = make_task(config, dataset), model_shapes(config, dataset), config.model.name
    size = min(config.client.batch_size, dataset.max_num_examples)
    has_padding = np.any(np.asarray(dataset.train.num_examples) % size)
    positions = np.linspace(0, len(dataset.train.y) - 1, 2 * NUM_ROWS).astype(int).reshape(2, NUM_ROWS)
    alone, (batch, others) = np.eye(NUM_ROWS, dtype=bool), positions
    moved, padded = np.r_[others[:1], batch[:1], others[2:]], np.r_[batch[:-1], others[-1:]]
    masks = np.stack([*alone, alone[1], np.ones(NUM_ROWS, bool), np.ones(NUM_ROWS, bool)])
    rows = np.stack([batch] * NUM_ROWS + [moved, batch, padded])
    batches = (np.asarray(dataset.train.x[rows]), np.asarray(dataset.train.y[rows]), masks)

    def compute(frozen: PyTree, variables: Variables, batches: PyTree) -> tuple[PyTree, Metrics]:
        bound, in_training = task if task.bind is None else task.bind(frozen), jnp.arange(NUM_ROWS) < NUM_ROWS - 1

        def compute_batch(batch: PyTree) -> tuple[PyTree, Metrics]:  # one program: mostly the same twice, so fast
            x, y, mask = batch
            loss = bound.loss(variables, x, y, in_training, jax.random.key(0))
            return (loss if has_padding else ()), bound.metrics(variables, x, y, mask)

        return jax.lax.map(compute_batch, batches)

    options = FAST_COMPILING if jax.default_backend() == "cpu" else None
    program = jax.jit(compute, compiler_options=options)
    with model_errors(config):
        jax.eval_shape(program, task.frozen, shapes, batches)
        if tree_bytes(shapes) > MAX_BYTES:
            return
        results = program(task.frozen, _draw(shapes), batches)
    losses, metrics = jax.tree.map(np.asarray, results)
    if not _is_close(*(jax.tree.map(lambda a, i=i: a[i], losses) for i in (-2, -1))):
        raise ConfigError(
            f"model.name: {name} reads padding in training: client.batch_size = {size} does not divide the clients' "
            "examples, and its loss or statistics change with what fills a batch; leave out examples where the "
            "argument `mask` [B] is False"
        )
    if not np.array_equal(metrics.num_examples, masks.sum(axis=1)):
        raise ConfigError(f"model.name: {name}: metrics must count the examples where mask is True, and no others")
    sums = np.stack([metrics.loss_sum, metrics.num_correct])
    if not _is_close((sums[:, -2], sums[:, 0]), (sums[:, :NUM_ROWS].sum(axis=1), sums[:, NUM_ROWS])):
        raise ConfigError(
            f"model.name: {name} gives an example another result in evaluation if the rest of its batch changes; use "
            "running statistics, no dropout, and sums over the examples where mask is True"
        )


def _draw(shapes: Variables) -> Variables:
    """Random parameters, and positive statistics, some of which may be variances."""
    rng = np.random.default_rng(0)

    def draw(shape: jax.ShapeDtypeStruct) -> Any:
        if not jnp.issubdtype(shape.dtype, jnp.floating):
            return jnp.zeros(shape.shape, shape.dtype)
        scale = np.sqrt(max(1, np.prod(shape.shape[:-1])))
        return (rng.standard_normal(shape.shape, np.float32) / scale).astype(shape.dtype)

    params, statistics = jax.tree.map(draw, tuple(shapes))
    return Variables(params, jax.tree.map(lambda a: abs(a) + (a != 0) / 2, statistics))


def _is_close(actual: PyTree, expected: PyTree) -> bool:
    pairs = zip(*(map(np.asarray, jax.tree.leaves(tree)) for tree in (actual, expected)), strict=True)
    return all(np.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True) for a, b in pairs)
