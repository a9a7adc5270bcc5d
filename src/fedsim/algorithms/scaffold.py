"""SCAFFOLD.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
ICML 2020, https://arxiv.org/abs/1910.06378
"""

import jax
import jax.numpy as jnp

from fedsim.core.types import Algorithm, Array, LocalTraining, PyTree, Trained


def scaffold() -> Algorithm:
    """SGD with each gradient moved by c - c_k (Algorithm 1, option II).

    `memory` is a client's control c_k, `shared` the server's control c. After its steps a client's control becomes
    c_k - c + (x - y) / (steps x learning rate), x the broadcast and y the trained parameters, and it sends the
    difference; the server adds the sum of these over N. The cohort's updates are averaged by whatever rule there is,
    with equal weights in the paper. Meant for the clients' plain SGD.
    """

    def init(params: PyTree) -> tuple[PyTree, PyTree]:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return zeros, zeros

    def train(local: LocalTraining, memory: PyTree, shared: PyTree) -> Trained:
        move = lambda g, own, common: g - own + common
        trained = local.sgd(lambda gradient, params: jax.tree.map(move, gradient, memory, shared))
        length = jnp.maximum(local.num_steps, 1) * local.learning_rate
        control = jax.tree.map(
            lambda own, common, x, y: own - common + (x - y) / length,
            memory,
            shared,
            local.start.params,
            trained.params,
        )
        return Trained(trained, control, jax.tree.map(jnp.subtract, control, memory))

    def share(shared: PyTree, messages: PyTree, valid: Array, num_clients: int) -> PyTree:
        del valid
        return jax.tree.map(lambda c, sent: c + jnp.sum(sent, axis=0) / num_clients, shared, messages)

    return Algorithm(init, train, share)
