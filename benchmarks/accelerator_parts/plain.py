"""fedsim's convolutional networks in flax's own layers: the same parameters under the same names, the same values.

Under `vmap` over clients, `nn.Conv` becomes a grouped convolution of the device's library.
"""

from typing import Any

import flax.linen as nn
import jax
from jax.nn.initializers import glorot_uniform

from fedsim.models import Cifar10CNN, FemnistCNN


class PlainCifar10CNN(nn.Module):
    """`Cifar10CNN`: x [B, 32, 32, 3] to logits [B, num_classes]."""

    num_classes: int = 10

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for number, (features, pool) in enumerate([(32, True), (64, True), (64, False)]):
            x = _conv(x, f"ConvRelu_{number}", features, 3, "VALID", pool)
        return _head(x, 64, self.num_classes)


class PlainFemnistCNN(nn.Module):
    """`FemnistCNN`: x [B, 28, 28, 1] to logits [B, num_classes]."""

    num_classes: int = 62

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for number, features in enumerate([32, 64]):
            x = _conv(x, f"ConvRelu_{number}", features, 5, "SAME", pool=True)
        return _head(x, 126, self.num_classes)


def _conv(x: jax.Array, name: str, features: int, size: int, padding: str, pool: bool) -> jax.Array:
    z = nn.Conv(features, (size, size), padding=padding, kernel_init=glorot_uniform(), name=name)(x)
    return nn.relu(nn.max_pool(z, (2, 2), (2, 2)) if pool else z)


def _head(x: jax.Array, hidden: int, num_classes: int) -> jax.Array:
    x = nn.relu(nn.Dense(hidden, kernel_init=glorot_uniform())(x.reshape(x.shape[0], -1)))
    return nn.Dense(num_classes, kernel_init=glorot_uniform())(x)


PLAIN: dict[type, Any] = {Cifar10CNN: PlainCifar10CNN, FemnistCNN: PlainFemnistCNN}
