"""SCAFFOLD.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
ICML 2020, https://arxiv.org/abs/1910.06378
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp

from fedsim.core.contracts import Algorithm, LocalResult, LocalTraining
from fedsim.core.settings import POSITIVE
from fedsim.core.types import Array, PyTree, Scalar


def scaffold(
    *,
    corrects: Annotated[
        Literal["gradient", "step"], "what c - c_k is added to: the gradient, or the step after momentum"
    ] = "gradient",
    weighting: Annotated[Literal["equal", "examples"], "of the clients in the mean of c's changes"] = "equal",
) -> Algorithm:
    """SGD with c - c_k added to each gradient (Algorithm 1, option II).

    `client_state` is a client's control variate c_k, `server_state` the server's c. After local training c_k becomes
    c_k - c + (x - y) / (steps x learning rate), x the broadcast and y the trained parameters, and the client sends the
    change; the server adds the sum of the changes over N, or their mean weighted by the clients' examples times the
    share of the N clients that sent one. The updates are aggregated by the server's rule, with equal weights in the
    paper. With momentum (x - y) / (steps x learning rate) is a mean step, not a mean gradient: use `corrects = "step"`.

    >>> import jax.numpy as jnp, fedsim
    >>> algorithm = fedsim.algorithms.scaffold()
    >>> _, server_state = algorithm.init({"w": jnp.ones(2)})
    >>> changes = {"w": jnp.array([[1.0, 2.0], [3.0, 2.0]])}  # of two of N = 4 clients
    >>> algorithm.update_server_state(server_state, changes, jnp.ones(2, bool), 4)["w"].tolist()
    [1.0, 1.0]
    """

    def init(params: PyTree) -> tuple[PyTree, PyTree]:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return zeros, zeros

    def train(local: LocalTraining, client_state: PyTree, server_state: PyTree) -> LocalResult:
        to_gradient = lambda g, c_k, c: g - c_k + c
        to_step = lambda step, c_k, c: step - local.learning_rate * (c - c_k)
        add = to_gradient if corrects == "gradient" else to_step
        correct = lambda corrected, params: jax.tree.map(add, corrected, client_state, server_state)
        trained = local.sgd(correct) if corrects == "gradient" else local.sgd(correct_step=correct)
        scale = jnp.maximum(local.num_steps, 1) * local.learning_rate
        scale = jnp.maximum(scale, POSITIVE["ge"])  # a schedule may end at 0
        update = lambda c_k, c, x, y: c_k - c + (x - y) / scale
        control = jax.tree.map(update, client_state, server_state, local.start.params, trained.params)
        changes = jax.tree.map(jnp.subtract, control, client_state)
        if weighting == "equal":
            return LocalResult(trained, control, changes)
        weight = jnp.asarray(local.num_examples, jnp.float32)
        return LocalResult(trained, control, (weight, jax.tree.map(lambda change: weight * change, changes)))

    def update_server_state(server_state: PyTree, messages: PyTree, valid: Array, num_clients: Scalar) -> PyTree:
        if weighting == "equal":  # times 1/N: a quotient has other last bits on several devices
            return jax.tree.map(lambda c, a: c + jnp.sum(a, axis=0) * (1 / num_clients), server_state, messages)
        weights, messages = messages
        total = num_clients * jnp.sum(weights) / jnp.maximum(jnp.sum(valid), 1)
        total = jnp.maximum(total, 1)  # without a client
        return jax.tree.map(lambda c, a: c + jnp.sum(a, axis=0) / total, server_state, messages)

    return Algorithm(init, train, update_server_state, needs_sgd=True)
