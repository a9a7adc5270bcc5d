"""Relu of bias plus 2x2 max pool, with the gradient written out.

With one array per window position the pool is a maximum of four arrays of one shape, without strides, and its gradient
four selects, without a scatter. Adding the bias after the pool gives the same values for a quarter of the work.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedsim.core.types import Array

Window: TypeAlias = tuple[Array, Array, Array, Array]
"""The four elements of every pool window, row by row, each [..., F]."""
WINDOW_SIZE = 4
DEAD = WINDOW_SIZE  # instead of a position: relu is 0, so no element of the window gets a gradient


def make_pool_relu(
    split: Callable[[Any], Window],
    unpool: Callable[[Array, Array], Any],
    store: Callable[[Array], Array] = jax.lax.optimization_barrier,
) -> Callable[[Any, Array], Array]:
    """Returns `pool_relu(z, bias [F])`, where `split(z)` gives the windows.

    The gradient goes to the first maximum of a window, as in XLA. Its position, int8, is stored instead of the window,
    and `unpool(positions, gradient [..., F])` gives the gradient of z. `store` is applied to the positions: by default
    a barrier that keeps the compiler from computing them later, which would keep all four elements until then.
    """

    @jax.custom_vjp
    def pool_relu(z: Any, bias: Array) -> Array:
        return nn.relu(_max(split(z)) + bias[None, None, None])

    def forward(z: Any, bias: Array) -> tuple[Array, Array]:
        a, b, c, _ = window = split(z)
        largest = _max(window)
        y = nn.relu(largest + bias[None, None, None])
        first = jnp.where(a == largest, 0, jnp.where(b == largest, 1, jnp.where(c == largest, 2, 3)))
        return y, store(jnp.where(y > 0, first, DEAD).astype(jnp.int8))

    def backward(positions: Array, gradient: Array) -> tuple[Any, Array]:
        bias_gradient = jnp.sum(jnp.where(positions == DEAD, 0, gradient), axis=(0, 1, 2))
        return unpool(positions, gradient), bias_gradient

    pool_relu.defvjp(forward, backward)
    return pool_relu


def _max(window: Window) -> Array:
    a, b, c, d = window
    return jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))
