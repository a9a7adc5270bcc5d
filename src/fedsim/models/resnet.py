"""ResNet-18 for small images, with group normalization.

K. He, X. Zhang, S. Ren, J. Sun: "Deep Residual Learning for Image Recognition", CVPR 2016,
https://arxiv.org/abs/1512.03385. For images of 32 x 32 pixels the first layer is 3 x 3 with stride 1, without a pool.
Batch normalization suffers where clients' data differ, and group normalization does not: K. Hsieh, A. Phanishayee,
O. Mutlu, P. Gibbons: "The Non-IID Data Quagmire of Decentralized Machine Learning", ICML 2020,
https://arxiv.org/abs/1910.00189. Y. Wu, K. He: "Group Normalization", ECCV 2018, https://arxiv.org/abs/1803.08494.
"""

from functools import partial
from typing import Annotated

import flax.linen as nn
from jax.nn.initializers import glorot_uniform, he_normal

from fedsim.core.settings import Bounds
from fedsim.core.types import Array, DataSpec

STAGES, BLOCKS = (1, 2, 4, 8), 2  # channels of each stage divided by the width; blocks per stage
EPSILON = 1e-5


class Block(nn.Module):
    """Residual block of two 3x3 convolutions, x [B, H, W, C] to [B, H', W', features]."""

    features: int
    stride: int
    groups: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        convolution = partial(nn.Conv, self.features, use_bias=False, kernel_init=he_normal())
        norm = partial(nn.GroupNorm, self.groups, epsilon=EPSILON)
        y = nn.relu(norm()(convolution((3, 3), self.stride)(x)))
        y = norm()(convolution((3, 3))(y))
        if x.shape != y.shape:
            x = norm()(convolution((1, 1), self.stride)(x))
        return nn.relu(x + y)


class ResNet18(nn.Module):
    """A 3x3 convolution, four stages of two blocks, the mean over all positions, dense: 11,173,962 parameters.

    x [B, H, W, C] in [0, 1]; logits [B, num_classes]. Convolution kernels are initialized He-normal, as in the paper,
    the dense kernel Glorot-uniform. Stages begin with stride 2, except the first.
    """

    num_classes: int = 10
    width: int = 64
    groups: int = 2

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.Conv(self.width, (3, 3), use_bias=False, kernel_init=he_normal())(x)
        x = nn.relu(nn.GroupNorm(self.groups, epsilon=EPSILON)(x))
        for stage, factor in enumerate(STAGES):
            for block in range(BLOCKS):
                stride = 2 if stage and not block else 1
                x = Block(factor * self.width, stride, self.groups)(x)
        return nn.Dense(self.num_classes, kernel_init=glorot_uniform())(x.mean(axis=(1, 2)))


def resnet18(
    spec: DataSpec,
    *,
    width: Annotated[int, Bounds(ge=1), "channels of the first stage; the others have 2, 4 and 8 times as many"] = 64,
    groups: Annotated[int, Bounds(ge=1), "groups of channels that are normalized together; must divide the width"] = 2,
) -> ResNet18:
    """ResNet-18 for images like `spec`. Raises `ValueError` if `groups` does not divide `width`."""
    if width % groups:
        raise ValueError(f"groups: must divide width = {width}, got {groups}")
    return ResNet18(spec.num_outputs, width, groups)
