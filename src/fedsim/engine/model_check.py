"""Tries out a plug-in model on a few examples: its results must depend neither on padding nor on other examples."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config.schema import Config
from fedsim.core.types import FederatedDataset, PyTree, Variables
from fedsim.engine.memory import tree_bytes
from fedsim.engine.model import cached_by_model, make_task, model_errors, model_shapes
from fedsim.errors import ConfigError

MAX_BYTES = 2**27  # larger models are not tried out
NUM_ROWS = 5  # of a batch
FAST_COMPILING: dict[str, Any] = {"xla_backend_optimization_level": 0}  # an option of the CPU


@cached_by_model(lambda config: config.client.batch_size)
def check_rows(config: Config, dataset: FederatedDataset) -> None:
    """Raises `ConfigError` if an example's results depend on padding, or in evaluation on the rest of its batch.

    In training, only if there is padding. Parameters are random numbers, because initial ones may be zero.
    """
    task, shapes, name = make_task(config, dataset), model_shapes(config, dataset), config.model.name
    bind = lambda frozen: task if task.bind is None else task.bind(frozen)
    positions = np.linspace(0, len(dataset.train.y) - 1, 2 * NUM_ROWS).astype(int)
    batch, others = zip(
        *(np.split(np.asarray(a[positions]), 2) for a in (dataset.train.x, dataset.train.y)), strict=True
    )
    masks = np.concatenate([np.eye(NUM_ROWS, dtype=bool), np.ones((1, NUM_ROWS), bool)])

    def loss(frozen: PyTree, variables: Variables, x: Any, y: Any) -> PyTree:
        return bind(frozen).loss(variables, x, y, jnp.arange(NUM_ROWS) < NUM_ROWS - 1, jax.random.key(0))

    def metrics(frozen: PyTree, variables: Variables, x: Any, y: Any) -> PyTree:
        return jax.lax.map(lambda mask: bind(frozen).metrics(variables, x, y, mask), jnp.asarray(masks))

    options = FAST_COMPILING if jax.default_backend() == "cpu" else None
    compute_loss, compute_metrics = (jax.jit(f, compiler_options=options) for f in (loss, metrics))
    with model_errors(config):
        jax.eval_shape(compute_loss, task.frozen, shapes, *batch)
        if tree_bytes(shapes) > MAX_BYTES:
            return
        inputs, size = (task.frozen, _draw(shapes)), min(config.client.batch_size, dataset.max_num_examples)
        if np.any(np.asarray(dataset.train.num_examples) % size):
            padded = [np.concatenate([a[:-1], b[-1:]]) for a, b in zip(batch, others, strict=True)]
            if not _is_close(compute_loss(*inputs, *batch), compute_loss(*inputs, *padded)):
                raise ConfigError(
                    f"model.name: {name} reads padding in training: client.batch_size = {size} does not divide the "
                    "clients' examples, and its loss or statistics change with what fills a batch; leave out examples "
                    "where the argument `mask` [B] is False"
                )
        moved = [np.concatenate([b[:1], a[:1], b[2:]]) for a, b in zip(batch, others, strict=True)]
        values, moved_values = compute_metrics(*inputs, *batch), compute_metrics(*inputs, *moved)
    if not np.array_equal(values.num_examples, masks.sum(axis=1)):
        raise ConfigError(f"model.name: {name}: metrics must count the examples where mask is True, and no others")
    sums, moved_sums = ((np.asarray(v.loss_sum), np.asarray(v.num_correct)) for v in (values, moved_values))
    together, alone = ([part(a) for a in sums] for part in (lambda a: a[-1], lambda a: a[:-1].sum()))
    if not (_is_close(together, alone) and _is_close([a[0] for a in sums], [a[1] for a in moved_sums])):
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
