"""Convolutional networks: the paper's (section "Experimental Setup"), and LeNet-5.

LeNet-5 is in its usual modern form: relu, max pools, fully connected channels and a dense output layer. Y. LeCun, L.
Bottou, Y. Bengio, P. Haffner: "Gradient-Based Learning Applied to Document Recognition", Proceedings of the IEEE
86(11), 1998, http://yann.lecun.com/exdb/publis/pdf/lecun-01a.pdf.
"""

from typing import Annotated, Literal

import flax.linen as nn
import jax.numpy as jnp
from jax.nn.initializers import glorot_uniform

from fedsim.core.settings import Bounds
from fedsim.core.types import Array, DataSpec

SIDE = 32  # of LeNet-5's inputs: digits of 28 x 28, zero-padded


class Cifar10CNN(nn.Module):
    """Three 3x3 valid convolutions (32, 64, 64), the first two pooled, dense 64, dense 10: 122,570 parameters.

    x [B, 32, 32, 3] in [0, 1]; logits [B, num_classes].
    """

    num_classes: int = 10
    dense_size: int = 64

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for number, features in enumerate((32, 64, 64)):
            x = _conv_relu(x, features, 3, number, pool=number < 2)
        return _head(x, (self.dense_size,), self.num_classes)


class FemnistCNN(nn.Module):
    """Two 5x5 same convolutions (32, 64), each pooled, dense 126, dense 62: 455,232 parameters.

    x [B, 28, 28, 1] in [0, 1]; logits [B, num_classes].
    """

    num_classes: int = 62
    dense_size: int = 126

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for number, features in enumerate((32, 64)):
            x = _conv_relu(x, features, 5, number, "SAME")
        return _head(x, (self.dense_size,), self.num_classes)


class LeNet5(nn.Module):
    """Two 5x5 valid convolutions (6, 16), each pooled, dense 120, 84 and 10: 61,706 parameters on gray images.

    x [B, H, W, C] in [0, 1], zero-padded to at least 32 x 32; logits [B, num_classes]. Glorot-uniform kernels.
    """

    num_classes: int = 10

    @nn.compact
    def __call__(self, x: Array) -> Array:
        rows, columns = (max(SIDE - side, 0) for side in x.shape[1:3])
        widths = (rows // 2, rows - rows // 2), (columns // 2, columns - columns // 2)
        x = jnp.pad(x, ((0, 0), *widths, (0, 0)))
        for number, features in enumerate((6, 16)):
            x = _conv_relu(x, features, 5, number)
        return _head(x, (120, 84), self.num_classes)


def _conv_relu(
    x: Array, features: int, size: int, number: int, padding: Literal["SAME", "VALID"] = "VALID", pool: bool = True
) -> Array:
    """Relu of a `size` x `size` convolution of x [B, H, W, C], and a 2x2 max pool; Glorot-uniform.

    `number` counts the convolutions of a module. Raises `ValueError` if x is smaller than the kernel (and pool).
    """
    least = (size if padding == "VALID" else 1) + pool
    if min(x.shape[1:3]) < least:
        parts = f"a {size} x {size} kernel" + " and a pool" * pool
        raise ValueError(f"x: must be at least {least} x {least} for {parts}, got {x.shape[1:3]}")
    name = f"ConvRelu_{number}"  # the initial model's random numbers follow from it
    x = nn.relu(nn.Conv(features, (size, size), padding=padding, kernel_init=glorot_uniform(), name=name)(x))
    return nn.max_pool(x, (2, 2), (2, 2)) if pool else x


def _head(x: Array, hidden_sizes: tuple[int, ...], num_classes: int) -> Array:
    x = jnp.reshape(x, (x.shape[0], -1))
    for size in hidden_sizes:
        x = nn.relu(nn.Dense(size, kernel_init=glorot_uniform())(x))
    return nn.Dense(num_classes, kernel_init=glorot_uniform())(x)


def cifar10_cnn(
    spec: DataSpec, *, dense_size: Annotated[int, Bounds(ge=1), "units of the hidden dense layer"] = 64
) -> Cifar10CNN:
    """The paper's network for CIFAR-10."""
    return Cifar10CNN(spec.num_outputs, dense_size)


def femnist_cnn(
    spec: DataSpec, *, dense_size: Annotated[int, Bounds(ge=1), "units of the hidden dense layer"] = 126
) -> FemnistCNN:
    """The paper's network for FEMNIST."""
    return FemnistCNN(spec.num_outputs, dense_size)


def lenet(spec: DataSpec) -> LeNet5:
    """LeNet-5 for images like `spec`."""
    return LeNet5(spec.num_outputs)
