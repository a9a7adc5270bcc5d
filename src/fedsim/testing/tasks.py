"""The contract of a task, as `fedsim.core.contracts.Task` states it."""

from collections.abc import Collection
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedsim.core.contracts import Task
from fedsim.core.types import Array, FederatedDataset, Metrics, PyTree, Variables
from fedsim.testing import require
from fedsim.testing.clauses import StatefulFunctionCase, by_name, check, traced_anew, vmap

KEY = jax.random.key(0)
BATCH_SIZE, NUM_UNMASKED = 8, 5
STEP = 1e-2  # of a finite difference
TOLERANCE = 0.05  # of a finite difference, relative to the slope


class _Case(StatefulFunctionCase):
    """Its rounds are evaluations of two models on one batch."""

    def __init__(self, task: Task, x: np.ndarray, y: np.ndarray, num_classes: int, seed: int) -> None:
        self.task, self.rng = task, np.random.default_rng(seed)
        order = self.rng.permutation(np.resize(np.arange(len(y)), max(2 * BATCH_SIZE, len(y))))
        batch, others = order[:BATCH_SIZE], order[BATCH_SIZE : 2 * BATCH_SIZE]
        self.x, self.y = jnp.asarray(x[batch]), jnp.asarray(y[batch])
        self.mask = jnp.arange(BATCH_SIZE) < NUM_UNMASKED
        unmasked = np.asarray(self.mask)
        replace_masked = lambda a: jnp.asarray(np.concatenate([a[batch][unmasked], a[others][~unmasked]]))
        self.changed_batch = replace_masked(x), replace_masked(y), self.mask
        self.is_classification = y.dtype.kind in "iu"
        self.largest_label = num_classes - 1 if num_classes else int(y.max()) if self.is_classification else 0
        self.variables: Variables = traced_anew(task.init)(KEY)
        self.value_and_gradient = jax.jit(
            lambda x, y, mask, key=KEY: jax.value_and_grad(self.loss, has_aux=True)(*self.variables, x, y, mask, key)
        )
        self.metrics = jax.jit(task.metrics)
        halved = jax.tree.map(lambda a: (0.5 * a).astype(a.dtype), self.variables)
        models = {"the initial model": self.variables, "half of the initial model": halved}
        inputs = {name: (model, self.x, self.y, self.mask) for name, model in models.items()}
        super().__init__(lambda state, *inputs: (task.metrics(*inputs), state), (), inputs)

    def loss(self, params: PyTree, statistics: PyTree, *batch: Array) -> tuple[Array, PyTree]:
        return self.task.loss(Variables(params, statistics), *batch)

    @cached_property
    def gradient_step(self) -> tuple[tuple[Array, PyTree], PyTree]:
        """((loss, statistics), gradient) of the batch."""
        return self.value_and_gradient(self.x, self.y, self.mask)


def _init(case: _Case) -> None:
    is_variables = isinstance(case.variables, Variables)
    require.true(is_variables, f"init must return Variables, got {type(case.variables).__name__}")
    require.finite(case.variables, "the initial model")
    require.true(bool(jax.tree.leaves(case.variables.params)), "the initial model must have parameters, got none")
    message = "the same key must give the same model, but a second one differs"
    require.close(traced_anew(case.task.init)(KEY), case.variables, message)


def _loss(case: _Case) -> None:
    (loss, _), gradient = case.gradient_step
    require.array(loss, "float32[]", "the loss")
    require.finite(loss, "the loss")
    require.like(gradient, case.variables.params, "the gradient")
    require.finite(gradient, "the gradient")


def _statistics(case: _Case) -> None:
    (_, statistics), _ = case.gradient_step
    require.like(statistics, case.variables.statistics, "the returned statistics")
    require.finite(statistics, "the returned statistics")


def _metrics(case: _Case) -> None:
    metrics = case.metrics(case.variables, case.x, case.y, case.mask)
    require.true(isinstance(metrics, Metrics), f"metrics must return Metrics, got {type(metrics).__name__}")
    for pair in metrics.named.values():
        require.pair(pair, "of each of named (a sum, its divisor)")
    for path, value in jax.tree_util.tree_leaves_with_path(metrics._asdict()):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        require.true(jnp.shape(value) == (), f"{name} must be a scalar, got {require.array_type(value)}")
    require.finite(metrics.loss_sum, "loss_sum")
    count, correct = metrics.num_examples, float(metrics.num_correct)
    require.true(count == NUM_UNMASKED, f"num_examples must be {NUM_UNMASKED}, the unmasked ones, got {count}")
    is_possible = np.isnan(correct) or 0 <= correct <= NUM_UNMASKED
    require.true(is_possible, f"num_correct must be from 0 to {NUM_UNMASKED}, or NaN, got {correct:g}")


def _deterministic(case: _Case) -> None:
    arguments = case.variables, case.x, case.y, case.mask
    message = "the same model and examples must give the same metrics, but a second call differs"
    require.close(traced_anew(case.task.metrics)(*arguments), case.metrics(*arguments), message)


def _mask(case: _Case) -> None:
    ((loss, statistics), gradient), batch = case.gradient_step, (case.x, case.y, case.mask)
    (changed_loss, changed_statistics), changed_gradient = case.value_and_gradient(*case.changed_batch)
    metrics, changed_metrics = case.metrics(case.variables, *batch), case.metrics(case.variables, *case.changed_batch)
    for name, actual, expected, scale in (
        ("the loss", changed_loss, loss, 1.0),
        ("the gradient", changed_gradient, gradient, require.max_abs(gradient)),
        ("the statistics", changed_statistics, statistics, require.max_abs(statistics)),
        ("the metrics", changed_metrics, metrics, 1.0),
    ):
        require.close(actual, expected, f"{name} must not depend on masked examples, but differs", scale)
    empty = case.metrics(case.variables, case.x, case.y, jnp.zeros(BATCH_SIZE, bool))
    require.true(empty.loss_sum == 0 and empty.num_examples == 0, "loss_sum must be 0 if all examples are masked")


def _mean(case: _Case) -> None:
    is_first = jnp.arange(BATCH_SIZE) < BATCH_SIZE // 2
    once = (loss, _), gradient = case.value_and_gradient(case.x, case.y, is_first)
    other = case.value_and_gradient(case.x, case.y, is_first, jax.random.key(1))
    if not all(jax.tree.leaves(jax.tree.map(np.array_equal, other, once))):
        return  # random numbers belong to positions
    twice = (jnp.concatenate([a[: BATCH_SIZE // 2]] * 2) for a in (case.x, case.y, is_first))
    (again, _), gradient_again = case.value_and_gradient(*twice)
    message = "must be a mean over the unmasked examples, but those twice, unpadded, give another one"
    scale = 1e3  # another factor is 2; half precision rounds
    require.close(again, loss, f"the loss {message}", scale)
    require.close(gradient_again, gradient, f"the gradient {message}", scale * require.max_abs(gradient))


def _additive(case: _Case) -> None:
    mask = jnp.ones(BATCH_SIZE, bool)
    halves = [slice(None, BATCH_SIZE // 2), slice(BATCH_SIZE // 2, None)]
    parts = [case.metrics(case.variables, case.x[half], case.y[half], mask[half]) for half in halves]
    message = "the metrics of a batch must be the sum of those of its halves, but differ"
    require.close(jax.tree.map(jnp.add, *parts), case.metrics(case.variables, case.x, case.y, mask), message)


def _gradient(case: _Case) -> None:
    """Along one random direction in the space of the parameters."""
    _, gradient = case.gradient_step
    leaves, structure = jax.tree.flatten(case.variables.params)
    direction = [case.rng.normal(size=leaf.shape) for leaf in leaves]
    length = np.sqrt(sum(np.sum(d**2) for d in direction))
    unit = jax.tree.unflatten(structure, [jnp.asarray(d / length, jnp.float32) for d in direction])

    @jax.jit
    def loss_at(step: float) -> Array:
        params = jax.tree.map(lambda p, d: p + step * d, case.variables.params, unit)
        return case.loss(params, case.variables.statistics, case.x, case.y, case.mask, KEY)[0]

    forward, backward = float(loss_at(STEP)), float(loss_at(-STEP))
    difference = (forward - backward) / (2 * STEP)
    slope = sum(np.sum(g * d) for g, d in zip(require.to_float64(gradient), require.to_float64(unit), strict=True))
    rounding = 8 * float(np.finfo(np.float32).eps) * max(abs(forward), 1.0) / STEP
    is_close = abs(difference - slope) <= TOLERANCE * abs(slope) + rounding
    message = f"the slope along a direction must be {difference:.3g}, by finite differences, got {slope:.3g}"
    require.true(is_close, f"{message}; if the model computes in half precision, skip this clause")


def _outputs(case: _Case) -> None:
    if case.is_classification:
        labels = jnp.full_like(case.y, case.largest_label)
        loss = case.metrics(case.variables, case.x, labels, jnp.ones(BATCH_SIZE, bool)).loss_sum
        require.true(
            loss > 0, f"the loss must be positive for label {case.largest_label}; does the model have an output?"
        )


def _frozen(case: _Case) -> None:
    has_arrays = bool(jax.tree.leaves(case.task.frozen))
    require.true(not has_arrays or case.task.bind is not None, "bind must be given with frozen arrays, got None")
    if case.task.bind is not None:
        bound = jax.jit(lambda frozen, *batch: case.task.bind(frozen).metrics(*batch))  # type: ignore[misc]
        inputs = case.variables, case.x, case.y, case.mask
        message = "bound to its frozen arrays the task must give the same metrics, but they differ"
        require.close(bound(case.task.frozen, *inputs), case.metrics(*inputs), message)
        bound_loss, _ = case.task.bind(case.task.frozen).loss(*inputs, KEY)
        (loss, _), _ = case.gradient_step
        require.close(bound_loss, loss, message.replace("metrics, but they differ", "loss, but it differs"))


CLAUSES = by_name(
    _init, _loss, _statistics, _metrics, _deterministic, _mask, _mean, _additive, _gradient, _outputs, vmap, _frozen
)


def check_task(
    task: Task, data: FederatedDataset | tuple[ArrayLike, ArrayLike], *, seed: int = 0, skip: Collection[str] = ()
) -> None:
    """Raises `AssertionError` with a sentence if `task` violates the contract; `skip` names clauses to leave out.

    `data` is a data set, or examples x [M, *feature] and y [M] or [M, T]; integers are classes. The task gets a
    batch of 8 examples, 3 of them masked, at its initial model. The clauses:

    - init: `Variables` with parameters, finite, the same for the same key;
    - loss: a finite float32, whose gradient is finite and like the parameters;
    - statistics: those that the loss returns are finite and like the initial ones;
    - metrics: scalars that count the unmasked examples;
    - deterministic: a second call gives the same metrics;
    - mask: masked examples change neither loss, gradient and statistics nor metrics;
    - mean: the loss, and its gradient, are means over the unmasked examples, unless they are random;
    - additive: the metrics of a batch are the sum of those of its halves;
    - gradient: equals a finite difference of the loss along a random direction;
    - outputs: the loss of the largest class is positive; it is 0 if the model has too few outputs;
    - vmap: the metrics are the same inside;
    - frozen: arrays that are not trained come with `bind`, and bound to them the task gives the same loss and metrics.

    Raises `ValueError` if `data` are no examples.
    """
    is_pair = isinstance(data, tuple | list) and len(data) == 2
    if not is_pair and not isinstance(data, FederatedDataset):
        raise ValueError(f"data: must be a fedsim.FederatedDataset or a pair (x, y), got {type(data).__name__}")
    x, y = map(np.asarray, (data.train.x, data.train.y) if isinstance(data, FederatedDataset) else data)
    if not (x.ndim and y.ndim and 0 < len(x) == len(y)):
        raise ValueError(f"data: x and y must have examples, equally many, got shapes {x.shape} and {y.shape}")
    num_classes = data.num_classes if isinstance(data, FederatedDataset) else 0
    check(task, Task, CLAUSES, lambda: _Case(task, x, y, num_classes, seed), skip)
