"""FedProx.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks", MLSys 2020,
https://arxiv.org/abs/1812.06127
"""

from typing import Annotated

import jax

from fedsim.core.contracts import Algorithm, LocalResult, LocalTraining
from fedsim.core.settings import Traced
from fedsim.core.types import PyTree, Scalar


def fedprox(
    *, mu: Annotated[Scalar, Traced(ge=0, le=1e30), "weight of the proximal term; 0: FedAvg"] = 0.01
) -> Algorithm:
    """SGD on the client's loss plus mu / 2 times the squared distance from the broadcast parameters (Algorithm 2).

    >>> import fedsim
    >>> start = fedsim.Variables({"w": 1.0})
    >>> corrected_gradient = lambda start, correct: correct({"w": 0.0}, {"w": 3.0})  # at w = 3, gradient 0
    >>> local = fedsim.LocalTraining(start, num_steps=1, learning_rate=0.1, train=corrected_gradient)
    >>> fedsim.algorithms.fedprox(mu=0.5).train(local, (), ()).variables  # mu (3 - 1)
    {'w': 1.0}
    """

    def train(local: LocalTraining, client_state: PyTree, server_state: PyTree) -> LocalResult:
        add_proximal = lambda g, w, start: g + mu * (w - start)
        correct = lambda gradient, params: jax.tree.map(add_proximal, gradient, params, local.start.params)
        return LocalResult(local.sgd(correct), client_state)

    return Algorithm(train=train)
