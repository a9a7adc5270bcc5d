"""The clients' optimizers as optax transformations; their state lasts for one round.

A factory takes the learning rate of the round. Only `sgd` takes all of `HParams`, since its settings are the keys
`client.momentum` and `client.weight_decay`.
"""

from typing import Annotated

import optax

from fedsim.core.method import client_sgd as sgd  # noqa: F401
from fedsim.core.settings import POSITIVE, Traced
from fedsim.core.types import Scalar

FirstDecay = Annotated[Scalar, Traced(ge=0, lt=1), "decay of the first moment"]
SecondDecay = Annotated[Scalar, Traced(ge=0, lt=1), "decay of the second moment"]
Epsilon = Annotated[Scalar, Traced(**POSITIVE), "added to the root of the second moment"]


def adam(
    learning_rate: Scalar, *, b1: FirstDecay = 0.9, b2: SecondDecay = 0.999, eps: Epsilon = 1e-8
) -> optax.GradientTransformation:
    """Adam.

    Kingma, Ba: "Adam: A Method for Stochastic Optimization", ICLR 2015, https://arxiv.org/abs/1412.6980
    """
    return optax.adam(learning_rate, b1, b2, eps)


def adamw(
    learning_rate: Scalar,
    *,
    b1: FirstDecay = 0.9,
    b2: SecondDecay = 0.999,
    eps: Epsilon = 1e-8,
    weight_decay: Annotated[
        Scalar, Traced(ge=0, le=1e30), "multiple of the parameters added to each step, before the learning rate"
    ] = 1e-4,
) -> optax.GradientTransformation:
    """Adam with decoupled weight decay.

    Loshchilov, Hutter: "Decoupled Weight Decay Regularization", ICLR 2019, https://arxiv.org/abs/1711.05101
    """
    return optax.adamw(learning_rate, b1, b2, eps, weight_decay=weight_decay)
