"""SCAFFOLD.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
ICML 2020, https://arxiv.org/abs/1910.06378
"""

import jax
import jax.numpy as jnp

from fedsim.core.contracts import Algorithm, LocalResult, LocalTraining
from fedsim.core.settings import POSITIVE
from fedsim.core.types import Array, PyTree


def scaffold() -> Algorithm:
    """SGD with c - c_k added to each gradient (Algorithm 1, option II).

    `client_state` is a client's control variate c_k, `server_state` the server's c. After local training c_k becomes
    c_k - c + (x - y) / (steps x learning rate), x the broadcast and y the trained parameters, and the client sends the
    change; the server adds the sum of the changes over N. The updates are aggregated by the server's rule, with equal
    weights in the paper. Intended for plain SGD of the clients.

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
        correct = lambda g, c_k, c: g - c_k + c
        trained = local.sgd(lambda gradient, params: jax.tree.map(correct, gradient, client_state, server_state))
        scale = jnp.maximum(local.num_steps, 1) * local.learning_rate
        scale = jnp.maximum(scale, POSITIVE["ge"])  # a schedule may end at 0
        update = lambda c_k, c, x, y: c_k - c + (x - y) / scale
        control = jax.tree.map(update, client_state, server_state, local.start.params, trained.params)
        return LocalResult(trained, control, jax.tree.map(jnp.subtract, control, client_state))

    def update_server_state(server_state: PyTree, messages: PyTree, valid: Array, num_clients: int) -> PyTree:
        del valid
        add_mean = lambda c, changes: c + jnp.sum(changes, axis=0) / num_clients
        return jax.tree.map(add_mean, server_state, messages)

    return Algorithm(init, train, update_server_state, needs_sgd=True)
