"""Convolution layers that stay fast under `vmap` over per-client parameters, with one implementation per backend.

Values and parameters are those of `flax.linen.Conv`, `flax.linen.max_pool` and `flax.linen.relu`; implementations
differ in the last bits only.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
from jax.nn import initializers
from jax.nn.initializers import Initializer, glorot_uniform

from fedsim.core.backend import current_backend
from fedsim.core.types import Array
from fedsim.models import block_matmul, im2col, strided_conv
from fedsim.models.padding import Padding, compute_pad_widths


class ConvFunctions(NamedTuple):
    """An implementation of convolution."""

    convolve: Callable[..., Array]
    """`(x [B, H, W, C], kernel [k, k, C, F], stride, pad_widths) -> [B, H', W', F]`."""
    convolve_pool_relu: Callable[..., Array]
    """`(x, kernel, bias [F], pad_widths) -> [B, H' / 2, W' / 2, F]`, with stride 1 and a 2x2 max pool."""


# The CPU's form was timed (benchmarks/round.py). Those of GPU and TPU were compiled for them, not timed.
CONV_FUNCTIONS = {
    "cpu": ConvFunctions(im2col.convolve, im2col.convolve_pool_relu),
    "gpu": ConvFunctions(block_matmul.convolve, block_matmul.convolve_pool_relu),
    "tpu": ConvFunctions(strided_conv.convolve, strided_conv.convolve_pool_relu),
}


def conv_functions() -> ConvFunctions:
    """The implementation for the backend that the program is traced for."""
    return CONV_FUNCTIONS.get(current_backend(), CONV_FUNCTIONS["tpu"])


class Conv(nn.Module):
    """A `size` x `size` convolution, x [B, H, W, C] to [B, H', W', features]."""

    features: int
    size: int
    stride: int = 1
    padding: Padding = "SAME"
    use_bias: bool = True
    kernel_init: Initializer = glorot_uniform()

    @nn.compact
    def __call__(self, x: Array) -> Array:
        kernel = self.param("kernel", self.kernel_init, (self.size, self.size, x.shape[-1], self.features))
        pad_widths = compute_pad_widths(x.shape, self.size, self.stride, self.padding)
        z = conv_functions().convolve(x, kernel, self.stride, pad_widths)
        return z + self.param("bias", initializers.zeros, (self.features,))[None, None, None] if self.use_bias else z


class ConvRelu(nn.Module):
    """Relu of a `size` x `size` convolution with stride 1, x [B, H, W, C] to [B, H', W', features]; Glorot-uniform.

    `pool` inserts a 2x2 max pool of stride 2; an odd last row or column is dropped. Raises `ValueError` if the input is
    smaller than the kernel (and pool).
    """

    features: int
    size: int
    padding: Padding = "VALID"
    pool: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        kernel = self.param("kernel", glorot_uniform(), (self.size, self.size, x.shape[-1], self.features))
        bias = self.param("bias", initializers.zeros, (self.features,))
        if min(x.shape[1:3]) < (self.size + self.pool if self.padding == "VALID" else 1 + self.pool):
            raise ValueError(f"x: must be large enough for a {self.size} x {self.size} kernel, got {x.shape[1:3]}")
        pad_widths = compute_pad_widths(x.shape, self.size, 1, self.padding)
        if self.pool:
            return conv_functions().convolve_pool_relu(x, kernel, bias, pad_widths)
        return nn.relu(conv_functions().convolve(x, kernel, 1, pad_widths) + bias[None, None, None])
