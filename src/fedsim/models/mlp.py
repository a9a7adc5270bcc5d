"""A multilayer perceptron, and one without hidden layers: multinomial logistic or linear regression."""

from collections.abc import Sequence
from typing import Annotated

import flax.linen as nn
from jax.nn.initializers import glorot_uniform

from fedsim.core.settings import Bounds
from fedsim.core.types import Array, DataSpec


class MLP(nn.Module):
    """Dense layers with relu on the flattened input [B, *feature]; logits [B, num_classes]. Glorot-uniform kernels."""

    num_classes: int
    hidden_sizes: Sequence[int] = (64,)
    dropout_rate: float = 0.0
    """Of each hidden layer."""

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> Array:
        x = x.reshape(x.shape[0], -1)
        for size in self.hidden_sizes:
            x = nn.relu(nn.Dense(size, kernel_init=glorot_uniform())(x))
            x = nn.Dropout(self.dropout_rate, deterministic=not train)(x)
        return nn.Dense(self.num_classes, kernel_init=glorot_uniform())(x)


def mlp(
    spec: DataSpec,
    *,
    hidden_sizes: Annotated[tuple[int, ...], Bounds(ge=1), "units of each hidden layer"] = (64,),
    dropout_rate: Annotated[float, Bounds(ge=0, lt=1), "probability that a hidden unit is dropped in training"] = 0.0,
) -> MLP:
    """The perceptron for data like `spec`."""
    return MLP(spec.num_outputs, hidden_sizes, dropout_rate)


def logistic(spec: DataSpec) -> MLP:
    """An `MLP` without hidden layers, the regression for data like `spec`; its loss is convex."""
    return MLP(spec.num_outputs, ())
