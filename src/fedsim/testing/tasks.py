"""The contract of a task, as `fedsim.core.types.Task` states it."""

from collections.abc import Collection
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedsim.core.types import Array, FederatedDataset, Metrics, PyTree, Task, Variables
from fedsim.testing.clauses import (
    check,
    kind,
    largest,
    numbers,
    require,
    require_close,
    require_finite,
    require_like,
    rows,
    stacked,
)

KEY = jax.random.key(0)
BATCH, REAL = 8, 5  # examples of a batch, and how many of them are not masked
STEP = 1e-2  # of a finite difference
SLACK = 0.05  # of the slope: what a finite difference may be off


class _Case:
    def __init__(self, task: Task, data: FederatedDataset | tuple[ArrayLike, ArrayLike], seed: int) -> None:
        x, y = (data.train.x, data.train.y) if isinstance(data, FederatedDataset) else map(np.asarray, data)
        self.task, self.rng = task, np.random.default_rng(seed)
        chosen = self.rng.permutation(np.resize(np.arange(len(y)), max(2 * BATCH, len(y))))
        batch, others = chosen[:BATCH], chosen[BATCH : 2 * BATCH]
        self.x, self.y = jnp.asarray(x[batch]), jnp.asarray(y[batch])
        self.mask = jnp.arange(BATCH) < REAL
        keep = np.asarray(self.mask)
        swap = lambda a: jnp.asarray(np.concatenate([a[batch][keep], a[others][~keep]]))
        self.masked_changed = swap(x), swap(y)
        self.is_classes = y.dtype.kind in "iu"
        num_classes = data.num_classes if isinstance(data, FederatedDataset) else 0
        self.largest_label = num_classes - 1 if num_classes else int(y.max()) if self.is_classes else 0
        self.variables: Variables = task.init(KEY)
        self.value_and_gradient = jax.jit(
            lambda *batch: jax.value_and_grad(self._loss, has_aux=True)(*self.variables, *batch, KEY)
        )
        self.metrics = jax.jit(task.metrics)

    def _loss(self, params: PyTree, statistics: PyTree, *batch: Array) -> tuple[Array, PyTree]:
        return self.task.loss(Variables(params, statistics), *batch)

    @cached_property
    def step(self) -> tuple[tuple[Array, PyTree], PyTree]:
        """((loss, statistics), gradient) of the batch."""
        return self.value_and_gradient(self.x, self.y, self.mask)


def _init(case: _Case) -> None:
    require(isinstance(case.variables, Variables), f"init gives {type(case.variables).__name__}, no Variables")
    require_finite(case.variables, "the initial model")
    again, sentence = case.task.init(KEY), "the same key gives another model the second time"
    require_close(again, case.variables, sentence)


def _loss(case: _Case) -> None:
    (loss, _), gradient = case.step
    require(kind(loss) == "float32[]", f"the loss is {kind(loss)}, not float32[]")
    require_finite(loss, "the loss")
    require_like(gradient, case.variables.params, "the gradient")
    require_finite(gradient, "the gradient")


def _statistics(case: _Case) -> None:
    (_, statistics), _ = case.step
    require_like(statistics, case.variables.statistics, "the statistics that the loss returns")
    require_finite(statistics, "a statistic")


def _metrics(case: _Case) -> None:
    metrics = case.metrics(case.variables, case.x, case.y, case.mask)
    require(isinstance(metrics, Metrics), f"the metrics are {type(metrics).__name__}, no Metrics")
    for name, value in metrics._asdict().items():
        require(jnp.shape(value) == (), f"{name} is {kind(value)}, no scalar")
    require_finite(metrics.loss_sum, "loss_sum")
    require(metrics.num_examples == REAL, f"num_examples is {metrics.num_examples} of {REAL} that are not masked")
    correct = float(metrics.num_correct)
    require(np.isnan(correct) or 0 <= correct <= REAL, f"num_correct is {correct:g} of {REAL} examples")


def _deterministic(case: _Case) -> None:
    first = case.task.metrics(case.variables, case.x, case.y, case.mask)
    sentence = "the same model and examples give other metrics the second time"
    require_close(case.task.metrics(case.variables, case.x, case.y, case.mask), first, sentence)


def _mask(case: _Case) -> None:
    changed = case.value_and_gradient(*case.masked_changed, case.mask)
    ((loss, statistics), gradient), ((other_loss, other_statistics), other_gradient) = case.step, changed
    sentence = "examples that are masked change the {}"
    require_close(other_loss, loss, sentence.format("loss"))
    require_close(other_gradient, gradient, sentence.format("gradient"), largest(gradient))
    require_close(other_statistics, statistics, sentence.format("statistics"), largest(statistics))
    metrics = case.metrics(case.variables, case.x, case.y, case.mask)
    changed_metrics = case.metrics(case.variables, *case.masked_changed, case.mask)
    require_close(changed_metrics, metrics, sentence.format("metrics"))
    nothing = case.metrics(case.variables, case.x, case.y, jnp.zeros(BATCH, bool))
    require(nothing.loss_sum == 0 and nothing.num_examples == 0, "with all examples masked loss_sum is not zero")


def _merge(case: _Case) -> None:
    everybody = jnp.ones(BATCH, bool)
    whole = case.metrics(case.variables, case.x, case.y, everybody)
    halves = [slice(None, BATCH // 2), slice(BATCH // 2, None)]
    parts = [case.metrics(case.variables, case.x[half], case.y[half], everybody[half]) for half in halves]
    total = jax.tree.map(jnp.add, *parts)
    require_close(total, whole, "the metrics of two halves of a batch do not sum to those of the batch")


def _difference(case: _Case) -> None:
    """Along one random direction in the space of the parameters."""
    _, gradient = case.step
    leaves, structure = jax.tree.flatten(case.variables.params)
    direction = [case.rng.normal(size=leaf.shape) for leaf in leaves]
    length = np.sqrt(sum(np.sum(d**2) for d in direction))
    move = jax.tree.unflatten(structure, [jnp.asarray(d / length, jnp.float32) for d in direction])

    @jax.jit
    def at(step: float) -> Array:
        params = jax.tree.map(lambda p, d: p + step * d, case.variables.params, move)
        return case._loss(params, case.variables.statistics, case.x, case.y, case.mask, KEY)[0]

    forth, back = float(at(STEP)), float(at(-STEP))
    difference = (forth - back) / (2 * STEP)
    slope = sum(np.sum(g * d) for g, d in zip(numbers(gradient), numbers(move), strict=True))
    rounding = 8 * float(np.finfo(np.float32).eps) * max(abs(forth), 1.0) / STEP
    close = abs(difference - slope) <= SLACK * abs(slope) + rounding
    require(close, f"the gradient along a direction is {slope:.3g}, a finite difference of the loss {difference:.3g}")


def _outputs(case: _Case) -> None:
    if case.is_classes:
        labels = jnp.full_like(case.y, case.largest_label)
        loss = case.metrics(case.variables, case.x, labels, jnp.ones(BATCH, bool)).loss_sum
        few = f"examples of the largest class, {case.largest_label}, have no loss: are there too few outputs?"
        require(loss > 0, few)


def _vmap(case: _Case) -> None:
    models = [case.variables, jax.tree.map(lambda a: (0.5 * a).astype(a.dtype), case.variables)]
    mapped = jax.jit(jax.vmap(case.task.metrics, (0, None, None, None)))(stacked(models), case.x, case.y, case.mask)
    for i, model in enumerate(models):
        alone = case.metrics(model, case.x, case.y, case.mask)
        sentence = "the metrics of several models at once, inside jax.vmap, are not those of each"
        require_close(rows(mapped, i), alone, sentence)


def _frozen(case: _Case) -> None:
    has_arrays = bool(jax.tree.leaves(case.task.frozen))
    require(not has_arrays or case.task.bind is not None, "there are frozen arrays, but no bind")
    if case.task.bind is not None:
        bound = jax.jit(lambda frozen, *batch: case.task.bind(frozen).metrics(*batch))  # type: ignore[misc]
        got = bound(case.task.frozen, case.variables, case.x, case.y, case.mask)
        wanted = case.metrics(case.variables, case.x, case.y, case.mask)
        require_close(got, wanted, "bound to its own frozen arrays it gives other metrics")


_CLAUSES = {
    "init": _init,
    "loss": _loss,
    "statistics": _statistics,
    "metrics": _metrics,
    "deterministic": _deterministic,
    "mask": _mask,
    "merge": _merge,
    "difference": _difference,
    "outputs": _outputs,
    "vmap": _vmap,
    "frozen": _frozen,
}
CLAUSES = tuple(_CLAUSES)


def check_task(
    task: Task,
    data: FederatedDataset | tuple[ArrayLike, ArrayLike],
    *,
    seed: int = 0,
    skip: Collection[str] = (),
) -> None:
    """Raises `AssertionError` with a sentence where it breaks the contract; `skip` names clauses to leave out.

    `data` is a data set, or examples x [M, *feature] and y [M] or [M, T]; integers are taken for classes. A batch of 8
    of them, 3 of which are masked, goes through the task at its initial model. The clauses:

    - init: `Variables`, finite, the same for the same key;
    - loss: a finite float32, and its gradient is finite and like the parameters;
    - statistics: those that the loss returns are finite and like the initial ones;
    - metrics: scalars that count the examples that are not masked;
    - deterministic: the same metrics the second time;
    - mask: masked examples change neither loss, gradient and statistics nor metrics;
    - merge: the metrics of two halves of a batch sum to those of the batch;
    - difference: the gradient along a direction is a finite difference of the loss;
    - outputs: an example of the largest class has a loss, which it has not where the model has too few outputs;
    - vmap: the same metrics in there;
    - frozen: arrays that are not trained come with `bind`, and bound to them the task is the same.
    """
    check(_CLAUSES, lambda: _Case(task, data, seed), skip)
