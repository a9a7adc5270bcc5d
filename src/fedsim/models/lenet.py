"""LeNet-5 in its usual modern form: relu, max pools, fully connected channels and a dense output layer.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: "Gradient-Based Learning Applied to Document Recognition", Proceedings of
the IEEE 86(11), 1998, http://yann.lecun.com/exdb/publis/pdf/lecun-01a.pdf.
"""

import flax.linen as nn
import jax.numpy as jnp
from jax.nn.initializers import glorot_uniform

from fedsim.core.types import Array, DataSpec
from fedsim.models.cnn import conv_relu

SIDE = 32  # of the paper's inputs: digits of 28 x 28, zero-padded


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
            x = conv_relu(x, features, 5, number)
        x = jnp.reshape(x, (x.shape[0], -1))
        for size in (120, 84):
            x = nn.relu(nn.Dense(size, kernel_init=glorot_uniform())(x))
        return nn.Dense(self.num_classes, kernel_init=glorot_uniform())(x)


def lenet(spec: DataSpec) -> LeNet5:
    """LeNet-5 for images like `spec`."""
    return LeNet5(spec.num_outputs)
