"""Convolution by `lax.conv`; under a pool, one of stride 2 for each position in the pool window: for TPUs.

Under `vmap` over kernels the TPU compiler writes a grouped convolution like a batched product, with the clients as one
more spatial axis, so no matrix unit works on zeros. What costs there is the pool: with a convolution of stride 2 for
each window position nothing larger than the pooled output is stored, and the selects of the gradient become part of the
convolutions that read it. Compiled for a TPU v5e, but not timed there.
"""

import jax
import jax.numpy as jnp

from fedsim.core.types import Array
from fedsim.models.padding import NO_PADDING, PadWidths
from fedsim.models.pooling import Window, make_pool_relu

LAYOUT = ("NHWC", "HWIO", "NHWC")


def convolve(x: Array, kernel: Array, stride: int = 1, pad_widths: PadWidths = NO_PADDING) -> Array:
    """Convolution [B, H', W', F] of zero-padded x [B, H, W, C] with `kernel` [k, k, C, F]."""
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), pad_widths, dimension_numbers=LAYOUT)


def convolve_pool_relu(x: Array, kernel: Array, bias: Array, pad_widths: PadWidths = NO_PADDING) -> Array:
    """Relu of `bias` [F] plus the 2x2 max pool of the convolution."""
    size = kernel.shape[0]

    def crop(offset: int, side: int, widths: tuple[int, int]) -> tuple[slice, tuple[int, int]]:
        """Rows or columns that the outputs at `offset` in the windows read, and the zeros around them."""
        before, after = widths
        outputs = (before + side + after - size + 1) // 2
        first = offset - before
        last = first + 2 * (outputs - 1) + size
        return slice(max(first, 0), min(last, side)), (max(-first, 0), max(last - side, 0))

    def convolve_at(i: int, j: int) -> Array:
        """The convolution at row i and column j of every window."""
        (rows, row_widths), (columns, column_widths) = (
            crop(offset, side, widths) for offset, side, widths in zip((i, j), x.shape[1:3], pad_widths, strict=True)
        )
        return convolve(x[:, rows, columns], kernel, 2, (row_widths, column_widths))

    return _pool_relu((convolve_at(0, 0), convolve_at(0, 1), convolve_at(1, 0), convolve_at(1, 1)), bias)


def _unpool(positions: Array, gradient: Array) -> Window:
    a, b, c, d = (jnp.where(positions == position, gradient, 0) for position in range(4))
    return a, b, c, d


_pool_relu = make_pool_relu(lambda window: window, _unpool)
