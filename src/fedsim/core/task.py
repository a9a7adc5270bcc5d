"""Builds tasks from flax modules (classification, regression) or from three functions."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import DTypeLike

from fedsim.core.contracts import Task
from fedsim.core.module import apply_module, as_linen, init_module
from fedsim.core.rewriting import for_backend
from fedsim.core.types import Array, Metrics, PyTree, Variables

Augmentation = Callable[[Array, Array], Array]  # key, x [B, *feature] -> x

MAX_SHIFT = 0.1  # fraction of an image's height and width


def shift_flip(key: Array, x: Array) -> Array:
    """Randomly shifts each image of `x` [B, H, W, C] by up to a tenth, repeating its border, and mirrors it.

    The paper's augmentation of CIFAR-10 (section "Experimental Setup"). Shifts are whole pixels, so images of less than
    10 pixels are only flipped.
    """

    def augment(key: Array, image: Array) -> Array:
        height, width, _ = image.shape
        row_key, column_key, flip_key = jax.random.split(key, 3)
        rows = jnp.arange(height) + _draw_shift(row_key, height)
        columns = jnp.arange(width) + _draw_shift(column_key, width)
        columns = jnp.where(jax.random.bernoulli(flip_key), width - 1 - columns, columns)
        return image[jnp.clip(rows, 0, height - 1)][:, jnp.clip(columns, 0, width - 1)]

    return jax.vmap(augment)(jax.random.split(key, x.shape[0]), x)


def _draw_shift(key: Array, size: int) -> Array:
    largest = int(MAX_SHIFT * size)
    return jax.random.randint(key, (), -largest, largest + 1)


AUGMENTATIONS: dict[str, Augmentation | None] = {"none": None, "shift_flip": shift_flip}


def stateless(init: Callable[[Array], PyTree], loss: Callable[..., Array], metrics: Callable[..., Metrics]) -> Task:
    """A task whose model has parameters only.

    `init(key)` returns params, `loss(params, x, y, mask, key)` a mean loss [], `metrics(params, x, y, mask)` `Metrics`.
    """
    return for_backend(
        Task(
            init=lambda key: Variables(init(key)),
            loss=lambda variables, *args: (loss(variables.params, *args), variables.statistics),
            metrics=lambda variables, *args: metrics(variables.params, *args),
        )
    )


def with_frozen(make: Callable[[PyTree], Task], frozen: PyTree) -> Task:
    """The task `make(frozen)`, which reads the arrays `frozen` and never trains them.

    They become arguments of compiled programs: an array that a function closes over is a constant of the program.
    """
    return make(frozen)._replace(frozen=frozen, bind=make)


def classification(
    module: Any, example: Array | np.ndarray, augmentation: Augmentation | None = None, dtype: DTypeLike = jnp.float32
) -> Task:
    """Softmax classification with cross-entropy loss by `module`, whose output is logits [B, *target, num_classes].

    `module` is one of flax.linen or flax.nnx; a class or function of `rngs` that builds one of nnx, such as
    `functools.partial(Net, 64)`, with other initial parameters for each key; or `from_functions`. `example` [*feature]
    is any input; only its shape and type matter. uint8 inputs reach the module as float32 in [0, 1], others unchanged.
    If the module's `__call__` takes `train`, it is True in the training loss (with keys of all streams of random
    numbers) and False elsewhere; `fedsim.core.module` lists other names of this argument, which may be a field, too. If
    it takes `mask` [B], that marks the real examples. Batch statistics are averaged over clients like parameters.
    `augmentation` changes the inputs of the training loss. The module computes in `dtype`: parameters and inputs are
    cast to it, outputs and gradients back to float32. An example with several targets (a text) counts as correct by the
    fraction of them that is. Raises `TypeError` if `module` is none of these; the loss raises `ValueError` if the
    labels are not integers of the shape of the logits without their last axis ([B, 1] is [B]).

    >>> import flax.linen as nn, jax, numpy as np, fedsim
    >>> task = fedsim.classification(nn.Dense(3), np.zeros(5, np.float32))
    >>> task.outputs(task.init(jax.random.key(0)), np.zeros((2, 5), np.float32)).shape
    (2, 3)
    """

    def score(logits: Array, y: Array) -> tuple[Array, Array]:
        if logits.ndim < 2:
            raise ValueError(f"module: must return logits [B, num_classes], got an array of shape {logits.shape}")
        y = _as_classes(y, logits.shape[:-1])
        losses = cross_entropy(logits, y)
        is_correct = (jnp.argmax(logits, axis=-1) == y) & ~jnp.isnan(losses)  # of which argmax is 0
        return _over_targets(losses), _over_targets(is_correct)

    def num_classes() -> int:
        x = jax.ShapeDtypeStruct((1, *example.shape), example.dtype)
        outputs: Any = task.outputs
        return int(jax.eval_shape(outputs, jax.eval_shape(task.init, jax.random.key(0)), x).shape[-1])

    task = _from_module(as_linen(module), example, score, augmentation, dtype)
    return task._replace(num_classes=num_classes)


def _as_classes(y: Array, shape: tuple[int, ...]) -> Array:
    """The labels `y` in the `shape` of the model's targets; a last axis of length 1 is dropped."""
    y = y[..., 0] if y.shape == (*shape, 1) else y
    if jnp.issubdtype(y.dtype, jnp.floating):
        raise ValueError(f"labels: must be integer classes, got {y.dtype}; use y.astype(int), or fedsim.regression")
    if y.shape != shape:
        one_hot = "use y.argmax(axis=1) for one-hot labels; several labels need a model with outputs for each"
        remedy = one_hot if y.ndim > 1 else "flatten x by x.reshape(len(x), -1)"
        raise ValueError(
            f"labels: each must have the shape {shape[1:]} of the model's outputs without their last axis, got "
            f"{y.shape[1:]}; {remedy}"
        )
    return y


def regression(
    module: Any, example: Array | np.ndarray, augmentation: Augmentation | None = None, dtype: DTypeLike = jnp.float32
) -> Task:
    """Regression with half the squared error, averaged over an example's targets; `module` returns [B, num_outputs].

    Targets are [B] or [B, T] with T = num_outputs. There are no correct predictions: the accuracy is NaN. The loss
    raises `ValueError` for other targets. Everything else is as in `classification`.
    """

    def score(outputs: Array, y: Array) -> tuple[Array, Array]:
        if outputs.size != y.size:
            raise ValueError(f"targets: must be as many as the outputs {outputs.shape[1:]}, got {y.shape[1:]}")
        errors = optax.l2_loss(outputs.reshape(y.shape), y.astype(jnp.float32))
        return _over_targets(errors), jnp.full(y.shape[:1], jnp.nan)

    return _from_module(as_linen(module), example, score, augmentation, dtype)


def _from_module(
    module: nn.Module,
    example: Array | np.ndarray,
    score: Callable[[Array, Array], tuple[Array, Array]],  # outputs, y -> loss [B], correct [B]
    augmentation: Augmentation | None,
    dtype: DTypeLike,
) -> Task:

    def init(key: Array) -> Variables:
        x = jnp.zeros((1, *example.shape), jnp.float32 if example.dtype == np.uint8 else example.dtype)
        return init_module(module, key, x)

    def apply(variables: Variables, x: Array, mask: Array, key: Array | None = None) -> tuple[Array, PyTree]:
        """`apply_module` in `dtype`; outputs are float32."""
        x, params = x.astype(dtype) / 255 if x.dtype == jnp.uint8 else x, variables.params
        if jnp.dtype(dtype) != jnp.float32:
            params, x = jax.tree.map(lambda a: a.astype(dtype) if a.dtype == jnp.float32 else a, (params, x))
        outputs, statistics = apply_module(module, Variables(params, variables.statistics), x, mask, key)
        return outputs.astype(jnp.float32), statistics

    def loss(variables: Variables, x: Array, y: Array, mask: Array, key: Array) -> tuple[Array, PyTree]:
        if augmentation is not None:
            augmentation_key, key = jax.random.split(key)
            x = augmentation(augmentation_key, x)
        outputs, new_statistics = apply(variables, x, mask, key)
        statistics = jax.tree.map(lambda new, old: new.astype(old.dtype), new_statistics, variables.statistics)
        losses, _ = score(outputs, y)
        return jnp.sum(jnp.where(mask, losses, 0.0)) / jnp.maximum(jnp.sum(mask), 1), statistics

    def metrics(variables: Variables, x: Array, y: Array, mask: Array) -> Metrics:
        losses, correct = score(apply(variables, x, mask)[0], y)
        return Metrics(
            loss_sum=jnp.sum(jnp.where(mask, losses, 0.0)),
            num_correct=jnp.sum(jnp.where(mask, correct, 0)),
            num_examples=jnp.sum(mask),
        )

    outputs = lambda variables, x: apply(variables, x, jnp.ones(len(x), bool))[0]
    return for_backend(Task(init, loss, metrics, outputs=outputs))


def _over_targets(values: Array) -> Array:
    """Averages `values` [B] or [B, *target] over each example's targets; returns [B]."""
    return values if values.ndim == 1 else jnp.mean(values.reshape(values.shape[0], -1), axis=1)


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Cross-entropy [B, *target] of `logits` [B, *target, C] with `labels` [B, *target].

    Uses a one-hot product, whose gradient needs no scatter.
    """
    return optax.softmax_cross_entropy(logits, jax.nn.one_hot(labels, logits.shape[-1]))
