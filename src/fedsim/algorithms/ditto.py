"""Ditto.

Li, Hu, Beirami, Smith: "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021,
https://arxiv.org/abs/2012.04221
"""

from typing import Annotated

import jax

from fedsim.core.contracts import Algorithm, LocalResult, LocalTraining
from fedsim.core.settings import Traced
from fedsim.core.types import PyTree, Scalar


def ditto(
    *, lam: Annotated[Scalar, Traced(ge=0, le=1e30), "weight of the distance to the broadcast parameters"] = 0.1
) -> Algorithm:
    """FedAvg, beside which each client trains a model v_k of its own (Algorithm 1).

    v_k minimizes the client's loss plus lam / 2 |v - w|^2, w the broadcast parameters, in as many steps of the client
    optimizer as those of w. It is kept from round to round, and starts at the initial model. Lam 0 is local training.

    >>> import fedsim
    >>> fedsim.algorithms.ditto().personal({"w": 3.0}, fedsim.Variables({"w": 1.0})).params
    {'w': 3.0}
    """

    def train(local: LocalTraining, client_state: PyTree, server_state: PyTree) -> LocalResult:
        add_distance = lambda g, v, w: g + lam * (v - w)
        correct = lambda gradient, params: jax.tree.map(add_distance, gradient, params, local.start.params)
        own = local.sgd(correct, local.start._replace(params=client_state))
        return LocalResult(local.sgd(), own.params)

    return Algorithm(
        init=lambda params: (params, ()), train=train, personal=lambda own, broadcast: broadcast._replace(params=own)
    )
