"""Momentum that each client keeps between rounds.

Karimireddy, He, Jaggi: "Learning from History for Byzantine Robust Optimization", ICML 2021,
https://arxiv.org/abs/2012.10333
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.core.contracts import Algorithm, LocalResult, LocalTraining
from fedsim.core.settings import POSITIVE, Traced
from fedsim.core.types import PyTree, Scalar


def worker_momentum(
    *, beta: Annotated[Scalar, Traced(ge=0, lt=1), "decay of a client's momentum; 0: FedAvg"] = 0.9
) -> Algorithm:
    """Clients send their momentum m = beta m + (1 - beta) g instead of g, the update in units of the learning rate.

    g = (w - w_k) / learning rate, w the broadcast and w_k the trained parameters; m = 0 before the client's first
    round. With one step per round g is its gradient, so this is distributed SGD with worker momentum.
    """

    def init(params: PyTree) -> tuple[PyTree, PyTree]:
        return jax.tree.map(jnp.zeros_like, params), ()

    def train(local: LocalTraining, client_state: PyTree, server_state: PyTree) -> LocalResult:
        trained, start = local.sgd(None), local.start.params
        rate = jnp.maximum(local.learning_rate, POSITIVE["ge"])  # a schedule may end at 0
        average = lambda m, w, end: beta * m + (1 - beta) * (w - end) / rate
        momentum = jax.tree.map(average, client_state, start, trained.params)
        params = jax.tree.map(lambda w, m: w - local.learning_rate * m, start, momentum)
        return LocalResult(trained._replace(params=params), momentum)

    return Algorithm(init, train)
