"""Convolution and pooling that stay fast under `vmap` over per-client parameters.

`vmap` of `lax.conv` over kernels is a grouped convolution, and XLA's CPU convolution is slow inside a loop; the
gradient of `reduce_window` is a scatter. Here a convolution is shifted slices times a matrix, which `vmap` turns into a
batched matrix product, and the pool has a gradient of its own. Values and parameters are those of `flax.linen.Conv` and
`flax.linen.max_pool`.
"""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import glorot_uniform, zeros

from fedsim.types import Array


class Conv(nn.Module):
    """A `size` x `size` convolution with stride 1, x [B, H, W, C] to [B, H', W', features]; Glorot-uniform kernel."""

    features: int
    size: int
    padding: Literal["SAME", "VALID"] = "VALID"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        k, channels = self.size, x.shape[-1]
        kernel = self.param("kernel", glorot_uniform(), (k, k, channels, self.features))
        bias = self.param("bias", zeros, (self.features,))
        if self.padding == "SAME":
            low = (k - 1) // 2
            x = jnp.pad(x, ((0, 0), (low, k - 1 - low), (low, k - 1 - low), (0, 0)))
        height, width = x.shape[1] - k + 1, x.shape[2] - k + 1
        if min(height, width) < 1:
            raise ValueError(f"a {k} x {k} kernel does not fit an input of {x.shape[1]} x {x.shape[2]}")
        shifted = [x[:, i : i + height, j : j + width] for i in range(k) for j in range(k)]
        patches = jnp.concatenate(shifted, axis=-1)  # [B, H', W', k * k * C]
        return patches @ kernel.reshape(k * k * channels, self.features) + bias[None, None, None]


@jax.custom_vjp
def max_pool(x: Array) -> Array:
    """The 2x2 max pool of x [B, H, W, C] with stride 2: [B, H // 2, W // 2, C]; an odd last row or column is dropped.

    The gradient goes to the first maximum of a window, as in XLA.
    """
    return jnp.maximum(*(jnp.maximum(*row) for row in _windows(x)))


def _windows(x: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """The four corners of every window, each [B, H // 2, W // 2, C], row by row."""
    height, width = 2 * (x.shape[1] // 2), 2 * (x.shape[2] // 2)
    a, b, c, d = (x[:, i:height:2, j:width:2] for i in (0, 1) for j in (0, 1))
    return (a, b), (c, d)


def _forward(x: Array) -> tuple[Array, tuple[Array, Array]]:
    largest = max_pool(x)
    return largest, (x, largest)


def _backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array]:
    x, largest = saved
    (a, b), (c, d) = _windows(x)
    open_ = jnp.ones(largest.shape, bool)
    shares = []
    for corner in (a, b, c, d):
        first = open_ & (corner == largest)
        shares.append(jnp.where(first, gradient, 0))
        open_ &= ~first
    batch, height, width, channels = largest.shape
    rows = [jnp.stack(shares[i : i + 2], axis=3) for i in (0, 2)]  # [B, H', W', 2, C]
    both = jnp.stack(rows, axis=2).reshape(batch, 2 * height, 2 * width, channels)
    odd = ((0, 0), (0, x.shape[1] - 2 * height), (0, x.shape[2] - 2 * width), (0, 0))
    return (jnp.pad(both, odd),)


max_pool.defvjp(_forward, _backward)
