"""Convolution by `lax.conv`, and under a pool by four of them, one for each corner of the pool's windows: for TPUs.

Under `vmap` over kernels the TPU compiler writes a grouped convolution like a batched product, with the clients as one
more spatial axis, so no matrix unit works on zeros. What costs there is the pool: with a convolution of stride 2 for
each corner nothing larger than the pooled output is stored, and the selects of the gradient become part of the
convolutions that read it (benchmarks/targets.py, benchmarks/LOG.md).
"""

import jax
import jax.numpy as jnp

from fedsim.core.types import Array
from fedsim.models.corners import Corners, bias_gradient, relu_of_largest, with_winner
from fedsim.models.padding import NONE, Zeros

LAYOUT = ("NHWC", "HWIO", "NHWC")


def convolve(x: Array, kernel: Array, stride: int = 1, zeros: Zeros = NONE) -> Array:
    """The convolution [B, H', W', F] of x [B, H, W, C], with `zeros` around it, with `kernel` [k, k, C, F]."""
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), zeros, dimension_numbers=LAYOUT)


def convolve_pool_relu(x: Array, kernel: Array, bias: Array, zeros: Zeros = NONE) -> Array:
    """Relu of the 2x2 max pool of the convolution, plus `bias` [F]."""
    size = kernel.shape[0]

    def window(corner: int, side: int, zeros: tuple[int, int]) -> tuple[slice, tuple[int, int]]:
        """The rows or columns that a corner's windows cover, and the zeros around them."""
        before, after = zeros
        outputs = (before + side + after - size + 1) // 2
        first = corner - before
        last = first + 2 * (outputs - 1) + size
        return slice(max(first, 0), min(last, side)), (max(-first, 0), max(last - side, 0))

    def of_corner(i: int, j: int) -> Array:
        (rows, above_below), (columns, left_right) = (
            window(corner, side, zero) for corner, side, zero in zip((i, j), x.shape[1:3], zeros, strict=True)
        )
        return convolve(x[:, rows, columns], kernel, 2, (above_below, left_right))

    return pool_relu((of_corner(0, 0), of_corner(0, 1), of_corner(1, 0), of_corner(1, 1)), bias)


@jax.custom_vjp
def pool_relu(corners: Corners, bias: Array) -> Array:
    """Relu of (the largest of `corners` [B, H, W, F], + `bias` [F])."""
    return relu_of_largest(corners, bias)


def _pool_relu_backward(winner: Array, gradient: Array) -> tuple[Corners, Array]:
    a, b, c, d = (jnp.where(winner == corner, gradient, 0) for corner in range(4))
    return (a, b, c, d), bias_gradient(winner, gradient)


pool_relu.defvjp(with_winner, _pool_relu_backward)
