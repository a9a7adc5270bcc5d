"""Convolution as patches times a matrix (im2col), a batched product under `vmap` over kernels: for CPUs.

`vmap` of `lax.conv` over kernels is a grouped convolution, XLA's CPU convolution is slow inside a loop, and the
gradient of `reduce_window` is a scatter. Outputs that no pool window covers are not computed.
"""

import jax.numpy as jnp

from fedsim.core.types import Array
from fedsim.models.matmul import contract_rows, make_matmul
from fedsim.models.padding import NO_PADDING, PadWidths, pad
from fedsim.models.pooling import Window, make_pool_relu


def convolve(x: Array, kernel: Array, stride: int = 1, pad_widths: PadWidths = NO_PADDING) -> Array:
    """Convolution [B, H', W', F] of zero-padded x [B, H, W, C] with `kernel` [k, k, C, F]."""
    x, size = pad(x, pad_widths), kernel.shape[0]
    height, width = ((side - size) // stride + 1 for side in x.shape[1:3])
    return _convolve(x, kernel, height, width, stride)


def convolve_pool_relu(x: Array, kernel: Array, bias: Array, pad_widths: PadWidths = NO_PADDING) -> Array:
    """Relu of `bias` [F] plus the 2x2 max pool of the convolution."""
    x = pad(x, pad_widths)
    size = kernel.shape[0]
    height, width = ((side - size + 1) // 2 * 2 for side in x.shape[1:3])
    return pool_relu(_convolve(x, kernel, height, width), bias)


def _convolve(x: Array, kernel: Array, height: int, width: int, stride: int = 1) -> Array:
    size = kernel.shape[0]
    rows, columns = stride * (height - 1) + 1, stride * (width - 1) + 1
    shifted = [x[:, i : i + rows : stride, j : j + columns : stride] for i in range(size) for j in range(size)]
    patches = jnp.concatenate(shifted, axis=-1)  # [B, H', W', k * k * C]
    return matmul(patches, kernel.reshape(-1, kernel.shape[-1]))


# The kernel's gradient is a product of two tall matrices, one of which the CPU has to transpose first. JAX's rule
# transposes the right one, together with all that was fused into it: up to five times slower.
matmul = make_matmul(contract_rows)


def _split(z: Array) -> Window:
    """Windows of z [B, H, W, C] with even H and W, each [B, H / 2, W / 2, C]."""
    return z[:, 0::2, 0::2], z[:, 0::2, 1::2], z[:, 1::2, 0::2], z[:, 1::2, 1::2]


def _unpool(positions: Array, gradient: Array) -> Array:
    batch, height, width, channels = gradient.shape
    of_window = jnp.arange(4, dtype=jnp.int8).reshape(1, 1, 2, 1, 2, 1)
    spread = lambda a: a[:, :, None, :, None]  # over the windows: [B, H / 2, 1, W / 2, 1, C]
    z_gradient = jnp.where(spread(positions) == of_window, spread(gradient), 0)
    return z_gradient.reshape(batch, 2 * height, 2 * width, channels)


pool_relu = make_pool_relu(_split, _unpool, store=lambda positions: positions)
