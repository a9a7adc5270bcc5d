"""Multinomial logistic regression; linear regression if the targets are numbers."""

import flax.linen as nn
from jax.nn.initializers import glorot_uniform

from fedsim.core.types import Array, DataSpec


class Logistic(nn.Module):
    """A dense layer on the flattened input [B, *feature]; logits [B, num_classes]. The kernel is Glorot-uniform."""

    num_classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        return nn.Dense(self.num_classes, kernel_init=glorot_uniform())(x.reshape(x.shape[0], -1))


def logistic(spec: DataSpec) -> Logistic:
    """The regression for data like `spec`; its loss is convex."""
    return Logistic(spec.num_outputs)
