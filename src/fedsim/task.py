"""A flax module as a `Task`: initialisation, training loss with augmentation, and test metrics of a classifier."""

import inspect
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import DTypeLike

from fedsim.types import Array, Metrics, PyTree, Task

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


def classification(
    module: nn.Module,
    example: Array | np.ndarray,
    augmentation: Augmentation | None = None,
    dtype: DTypeLike = jnp.float32,
) -> Task:
    """Softmax classification by cross-entropy with `module`, whose output is logits [B, num_classes].

    `example` [*feature] is any one input; only its shape and type count. uint8 inputs reach the module as float32 in
    [0, 1], all others as they are. Where the module's `__call__` takes `train`, it gets True in the training loss
    (together with a "dropout" key) and False elsewhere. The module may keep parameters only, no batch statistics.
    `augmentation` changes the inputs of the training loss. The module computes in `dtype`: parameters and inputs are
    cast to it, logits and gradients back to float32.
    """
    takes_train = "train" in inspect.signature(type(module).__call__).parameters

    def mode(train: bool) -> dict[str, Any]:
        return {"train": train} if takes_train else {}

    def apply(params: PyTree, x: Array, key: Array | None = None) -> Array:
        x = x.astype(dtype) / 255 if x.dtype == jnp.uint8 else x
        if jnp.dtype(dtype) != jnp.float32:
            params, x = jax.tree.map(lambda a: a.astype(dtype) if a.dtype == jnp.float32 else a, (params, x))
        rngs = {} if key is None else {"dropout": key}
        logits: Any = module.apply({"params": params}, x, rngs=rngs, **mode(train=key is not None))
        return logits.astype(jnp.float32)

    def init(key: Array) -> PyTree:
        x = jnp.zeros((1, *example.shape), jnp.float32 if example.dtype == np.uint8 else example.dtype)
        variables = module.init(key, x, **mode(train=False))
        if set(variables) != {"params"}:
            raise ValueError(f"{type(module).__name__} keeps {sorted(variables)}; fedsim trains parameters only")
        return variables["params"]

    def loss(params: PyTree, x: Array, y: Array, mask: Array, key: Array) -> Array:
        if augmentation is not None:
            augmentation_key, key = jax.random.split(key)
            x = augmentation(augmentation_key, x)
        losses = cross_entropy(apply(params, x, key), y)
        return jnp.sum(jnp.where(mask, losses, 0.0)) / jnp.maximum(jnp.sum(mask), 1)

    def metrics(params: PyTree, x: Array, y: Array, mask: Array) -> Metrics:
        logits = apply(params, x)
        return Metrics(
            loss_sum=jnp.sum(jnp.where(mask, cross_entropy(logits, y), 0.0)),
            num_correct=jnp.sum(mask & (jnp.argmax(logits, axis=-1) == y)),
            num_examples=jnp.sum(mask),
        )

    return Task(init, loss, metrics)


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Cross-entropy [B] of `logits` [B, C] with `labels` [B]; by a one-hot product, whose gradient is no scatter."""
    return optax.softmax_cross_entropy(logits, jax.nn.one_hot(labels, logits.shape[-1]))
