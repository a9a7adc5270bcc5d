"""ResNet-18 for images of 32 x 32 pixels, with group normalization: larger than the paper's networks.

He, Zhang, Ren, Sun: "Deep Residual Learning for Image Recognition", CVPR 2016; the first layer is 3 x 3 without a pool,
as is usual for CIFAR-10, and normalization is by groups, as is usual in federated learning (Hsieh et al., ICML 2020).
"""

from functools import partial
from typing import Literal

import flax.linen as nn
from jax.nn.initializers import glorot_uniform

from fedsim.core.types import Array
from fedsim.models.layers import Conv

STAGES, BLOCKS, GROUPS = (64, 128, 256, 512), 2, 2


class ResNet18(nn.Module):
    """x [B, 32, 32, 3] in [0, 1]; logits [B, num_classes]. The convolutions are fedsim's or flax's."""

    num_classes: int = 10
    layers: Literal["fedsim", "flax"] = "fedsim"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        norm = partial(nn.GroupNorm, num_groups=GROUPS)
        x = nn.relu(norm()(self.convolve(x, STAGES[0], 3)))
        for stage, features in enumerate(STAGES):
            for block in range(BLOCKS):
                stride = 2 if stage and not block else 1
                y = nn.relu(norm()(self.convolve(x, features, 3, stride)))
                y = norm()(self.convolve(y, features, 3))
                if x.shape != y.shape:
                    x = norm()(self.convolve(x, features, 1, stride))
                x = nn.relu(x + y)
        return nn.Dense(self.num_classes)(x.mean(axis=(1, 2)))

    def convolve(self, x: Array, features: int, size: int, stride: int = 1) -> Array:
        """A convolution by `layers`."""
        if self.layers == "fedsim":
            return Conv(features, size, stride, use_bias=False)(x)
        kernel = glorot_uniform()
        return nn.Conv(features, (size, size), (stride, stride), use_bias=False, kernel_init=kernel)(x)
