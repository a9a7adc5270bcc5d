"""Tasks from simpler things: a flax module that classifies or predicts numbers, or three functions."""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import DTypeLike

from fedsim.core.backend import tracing_for
from fedsim.core.types import Array, Metrics, PyTree, Task, Variables

Augmentation = Callable[[Array, Array], Array]  # key, x [B, *feature] -> x

MAX_SHIFT = 0.1  # share of an image's height and width


def shift_flip(key: Array, x: Array) -> Array:
    """Images [B, H, W, C], each shifted by up to a tenth (its border repeated) and flipped left to right or not.

    The paper's augmentation of CIFAR-10 (section "Experimental Setup"). Whole pixels, so images of less than 10 are
    only flipped; the draws differ by image.
    """

    def one(key: Array, image: Array) -> Array:
        height, width, _ = image.shape
        row_key, column_key, flip_key = jax.random.split(key, 3)
        rows = jnp.arange(height) + _shift(row_key, height)
        columns = jnp.arange(width) + _shift(column_key, width)
        columns = jnp.where(jax.random.bernoulli(flip_key), width - 1 - columns, columns)
        return image[jnp.clip(rows, 0, height - 1)][:, jnp.clip(columns, 0, width - 1)]

    return jax.vmap(one)(jax.random.split(key, x.shape[0]), x)


def _shift(key: Array, size: int) -> Array:
    most = int(MAX_SHIFT * size)
    return jax.random.randint(key, (), -most, most + 1)


AUGMENTATIONS: dict[str, Augmentation | None] = {"none": None, "shift_flip": shift_flip}


def stateless(init: Callable[[Array], PyTree], loss: Callable[..., Array], metrics: Callable[..., Metrics]) -> Task:
    """A task whose model is all parameters.

    `init(key)` gives params, `loss(params, x, y, mask, key)` a number, `metrics(params, x, y, mask)` are `Metrics`.
    """
    return Task(
        init=lambda key: Variables(init(key)),
        loss=lambda variables, *args: (loss(variables.params, *args), variables.statistics),
        metrics=lambda variables, *args: metrics(variables.params, *args),
    )


def with_frozen(make: Callable[[PyTree], Task], frozen: PyTree) -> Task:
    """The task `make(frozen)`, which reads the arrays `frozen` and never trains them.

    Compiled programs get them as arguments: an array that a function closes over becomes a constant of the program.
    """
    return make(frozen)._replace(frozen=frozen, bind=make)


def classification(
    module: nn.Module,
    example: Array | np.ndarray,
    augmentation: Augmentation | None = None,
    dtype: DTypeLike = jnp.float32,
    backend: str | None = None,
) -> Task:
    """Softmax classification by cross-entropy with `module`, whose output is logits [B, *target, num_classes].

    `example` [*feature] is any one input; only its shape and type count. uint8 inputs reach the module as float32 in
    [0, 1], all others as they are. Where the module's `__call__` takes `train`, it gets True in the training loss
    (together with a "dropout" key) and False elsewhere; where it takes `mask`, the examples [B] that are real. Batch
    statistics are kept and averaged over clients like parameters. `augmentation` changes the inputs of the training
    loss. The module computes in `dtype`: parameters and inputs are cast to it, outputs and gradients back to float32.
    fedsim's layers take the form for `backend` ("cpu", "gpu" or "tpu"), by default that of JAX's own devices. An
    example with several targets (a text, say) counts as correct by the share of them that is.
    """

    def score(logits: Array, y: Array) -> tuple[Array, Array]:
        return _over_targets(cross_entropy(logits, y)), _over_targets(jnp.argmax(logits, axis=-1) == y)

    task = _from_module(module, example, score, augmentation, dtype, backend)
    return task._replace(num_classes=lambda: _outputs(module, example, task))


def _outputs(module: nn.Module, example: Array | np.ndarray, task: Task) -> int:
    """The length of the model's last axis."""

    def apply(key: Array) -> Any:
        variables, x = task.init(key), jnp.zeros((1, *example.shape), _input_type(example))
        return module.apply(
            {"params": variables.params, **(variables.statistics or {})}, x, **_options(module, mask=jnp.ones(1, bool))
        )

    shape: tuple[int, ...] = jax.eval_shape(apply, jax.random.key(0)).shape
    return shape[-1]


def _input_type(example: Array | np.ndarray) -> DTypeLike:
    """Of what the module gets."""
    return jnp.float32 if example.dtype == np.uint8 else example.dtype


def _options(module: nn.Module, train: bool = False, mask: Array | None = None) -> dict[str, Any]:
    """Those of the options that its `__call__` takes."""
    given = {"train": train, "mask": mask}
    return {name: value for name, value in given.items() if name in inspect.signature(type(module).__call__).parameters}


def regression(
    module: nn.Module,
    example: Array | np.ndarray,
    augmentation: Augmentation | None = None,
    dtype: DTypeLike = jnp.float32,
    backend: str | None = None,
) -> Task:
    """Half the squared error, mean over an example's targets, with `module`, whose output is [B, num_outputs].

    Targets are [B] or [B, T] with T = num_outputs. Nothing is ever correct: the accuracy is NaN. The rest is as in
    `classification`.
    """

    def score(outputs: Array, y: Array) -> tuple[Array, Array]:
        errors = optax.l2_loss(outputs.reshape(y.shape), y.astype(jnp.float32))
        return _over_targets(errors), jnp.full(y.shape[:1], jnp.nan)

    return _from_module(module, example, score, augmentation, dtype, backend)


def _from_module(
    module: nn.Module,
    example: Array | np.ndarray,
    score: Callable[[Array, Array], tuple[Array, Array]],  # outputs, y -> loss [B], correct [B]
    augmentation: Augmentation | None,
    dtype: DTypeLike,
    backend: str | None,
) -> Task:
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"module: expected a flax.linen module, got {type(module).__name__}; an nnx one becomes linen by "
            "flax.nnx.bridge.to_linen(Class, arguments)"
        )
    options = partial(_options, module)

    def init(key: Array) -> Variables:
        x = jnp.zeros((1, *example.shape), _input_type(example))
        variables = dict(module.init(key, x, **options(train=False, mask=jnp.ones(1, bool))))
        return Variables(variables.pop("params", {}), variables or ())

    def cast(x: Array, params: PyTree) -> tuple[Array, PyTree]:
        x = x.astype(dtype) / 255 if x.dtype == jnp.uint8 else x
        if jnp.dtype(dtype) != jnp.float32:
            params, x = jax.tree.map(lambda a: a.astype(dtype) if a.dtype == jnp.float32 else a, (params, x))
        return x, params

    def loss(variables: Variables, x: Array, y: Array, mask: Array, key: Array) -> tuple[Array, PyTree]:
        if augmentation is not None:
            augmentation_key, key = jax.random.split(key)
            x = augmentation(augmentation_key, x)
        x, params = cast(x, variables.params)
        collections = {"params": params, **(variables.statistics or {})}
        names: Any = list(variables.statistics or ()) or False
        outputs: Any = module.apply(
            collections, x, rngs={"dropout": key}, mutable=names, **options(train=True, mask=mask)
        )
        outputs, moved = outputs if names else (outputs, ())
        statistics = jax.tree.map(lambda new, old: new.astype(old.dtype), moved, variables.statistics)
        losses, _ = score(outputs.astype(jnp.float32), y)
        return jnp.sum(jnp.where(mask, losses, 0.0)) / jnp.maximum(jnp.sum(mask), 1), statistics

    def metrics(variables: Variables, x: Array, y: Array, mask: Array) -> Metrics:
        x, params = cast(x, variables.params)
        collections = {"params": params, **(variables.statistics or {})}
        outputs: Any = module.apply(collections, x, **options(train=False, mask=mask))
        losses, correct = score(outputs.astype(jnp.float32), y)
        return Metrics(
            loss_sum=jnp.sum(jnp.where(mask, losses, 0.0)),
            num_correct=jnp.sum(jnp.where(mask, correct, 0)),
            num_examples=jnp.sum(mask),
        )

    return for_backend(Task(init, loss, metrics), backend)


def for_backend(task: Task, backend: str | None) -> Task:
    """The same task, in which fedsim's layers take the form for `backend`; None: as it is."""

    def traced(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def inside(*args: Any, **options: Any) -> Any:
            with tracing_for(backend):
                return function(*args, **options)

        return inside

    if backend is None:
        return task
    bind = task.bind
    bound = None if bind is None else lambda frozen: for_backend(bind(frozen), backend)
    num_classes = None if task.num_classes is None else traced(task.num_classes)
    return Task(traced(task.init), traced(task.loss), traced(task.metrics), task.frozen, bound, num_classes)


def _over_targets(values: Array) -> Array:
    """The mean [B] over the targets of each example, of values [B] or [B, T]."""
    return values if values.ndim == 1 else jnp.mean(values.reshape(values.shape[0], -1), axis=1)


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Cross-entropy [B, *target] of `logits` [B, *target, C] with `labels` [B, *target].

    By a one-hot product, whose gradient is no scatter.
    """
    return optax.softmax_cross_entropy(logits, jax.nn.one_hot(labels, logits.shape[-1]))
