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

LAYOUT = ("NHWC", "HWIO", "NHWC")


def convolve(x: Array, kernel: Array, stride: int = 1) -> Array:
    """The valid convolution [B, H', W', F] of x [B, H, W, C] with `kernel` [k, k, C, F]."""
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), "VALID", dimension_numbers=LAYOUT)


def convolve_pool_relu(x: Array, kernel: Array, bias: Array) -> Array:
    """Relu of the 2x2 max pool of the convolution, plus `bias` [F]."""
    size = kernel.shape[0]
    height, width = ((side - size + 1) // 2 * 2 + size - 2 for side in x.shape[1:3])  # what a corner's windows cover
    a, b, c, d = (convolve(x[:, i : i + height, j : j + width], kernel, stride=2) for i in (0, 1) for j in (0, 1))
    return pool_relu((a, b, c, d), bias)


@jax.custom_vjp
def pool_relu(corners: Corners, bias: Array) -> Array:
    """Relu of (the largest of `corners` [B, H, W, F], + `bias` [F])."""
    return relu_of_largest(corners, bias)


def _pool_relu_backward(winner: Array, gradient: Array) -> tuple[Corners, Array]:
    a, b, c, d = (jnp.where(winner == corner, gradient, 0) for corner in range(4))
    return (a, b, c, d), bias_gradient(winner, gradient)


pool_relu.defvjp(with_winner, _pool_relu_backward)
