"""FedNova.

Wang, Liu, Liang, Joshi, Poor: "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
NeurIPS 2020, https://arxiv.org/abs/2007.07481
"""

import jax
import jax.numpy as jnp

from fedsim.core.contracts import Algorithm, LocalResult, LocalTraining
from fedsim.core.types import Array, PyTree, Scalar

NUM_TERMS = 10
"""The next term is below 1e-8 of the first."""


def fednova() -> Algorithm:
    """Divides each client's update by its effective number of steps a_k, and multiplies the aggregate by their mean.

    a_k accounts for SGD with momentum as in the paper; the mean is weighted by the rule's weights w_k. With FedAvg's
    rule the server moves by (sum of w_k a_k) (sum of w_k u_k / a_k): the paper's choice of tau_eff.
    If all clients make the same number of steps, this is FedAvg.
    """

    def train(local: LocalTraining, client_state: PyTree, server_state: PyTree) -> LocalResult:
        trained, a = local.sgd(None), effective_steps(local.num_steps, local.momentum)
        normalize = lambda start, end: start + (end - start) / a
        params = jax.tree.map(normalize, local.start.params, trained.params)
        return LocalResult(trained._replace(params=params), client_state, a)

    def scale(messages: PyTree, weights: Array) -> Array:
        return jnp.sum(weights * messages)

    return Algorithm(train=train, scale=scale, needs_sgd=True)


def effective_steps(num_steps: Array, momentum: Scalar | None) -> Array:
    """|a|_1 of a client, []: the total weight of its gradients in its update; 1 if it makes no step.

    With momentum rho the gradient of a step has weight 1 in it, rho in the next one and so on: in total the sum over
    j = 1 ... num_steps of (1 - rho^j) / (1 - rho).
    """
    steps = jnp.maximum(num_steps, 1).astype(jnp.float32)
    if momentum is None:
        return steps
    closed = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    # Of few steps the difference loses its digits; as a series: (rho - 1)^k times (num_steps + 1 over k + 2).
    terms = [steps * (steps + 1) / 2]
    for k in range(1, NUM_TERMS):
        terms.append(terms[-1] * (momentum - 1) * (steps - k) / (k + 2))
    return jnp.where((1 - momentum) * steps < 1, sum(terms[::-1]), closed)
