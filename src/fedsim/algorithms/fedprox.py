"""FedProx.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks", MLSys 2020,
https://arxiv.org/abs/1812.06127
"""

from typing import Annotated

import jax

from fedsim.core.settings import Scalar, Traced
from fedsim.core.types import Algorithm, LocalTraining, PyTree, Trained


def fedprox(
    *, mu: Annotated[Scalar, Traced(ge=0, le=1e30), "weight of the proximal term; 0: FedAvg"] = 0.01
) -> Algorithm:
    """SGD on the client's loss plus mu / 2 times the squared distance from the broadcast parameters (Algorithm 2)."""

    def train(local: LocalTraining, memory: PyTree, shared: PyTree) -> Trained:
        del shared
        pull = lambda g, w, start: g + mu * (w - start)
        correct = lambda gradient, params: jax.tree.map(pull, gradient, params, local.start.params)
        return Trained(local.sgd(correct), memory, ())

    return Algorithm(lambda params: ((), ()), train, lambda shared, messages, valid, num_clients: shared)
