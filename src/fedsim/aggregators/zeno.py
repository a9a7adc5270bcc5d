"""Zeno.

Xie, Koyejo, Gupta: "Zeno: Distributed Stochastic Gradient Descent with Suspicion-based Fault-tolerance", ICML 2019,
https://arxiv.org/abs/1805.10032
"""

from typing import Annotated

import jax.numpy as jnp

from fedsim.aggregators.weighting import NumByzantine, assumed_byzantine, equal_weights, from_weights
from fedsim.core.contracts import Aggregator
from fedsim.core.selection import select_lowest
from fedsim.core.settings import Limit, Traced
from fedsim.core.trees import squared_norms
from fedsim.core.types import Array, CohortReport, Scalar

LIMIT = Limit("b < K", lambda k: k - 1)


def zeno(
    *,
    num_byzantine: Annotated[NumByzantine, LIMIT] = None,
    rho: Annotated[Scalar, Traced(ge=0, le=1e30), "penalty on an update's squared norm"] = 0.05,
) -> Aggregator:
    """The mean of the K - b updates that reduce the loss on the server's root data most, with a penalty on their norms.

    Client k's score is F(w) - F(w + u_k) - rho |u_k|^2, where F is the mean loss on the root data and w the broadcast
    model. b = `num_byzantine`, K is the number of valid clients; at least one client is kept. Equal scores: the lower
    client id wins. Clients count equally. The paper's gradients are -u_k / gamma with its learning rate gamma, so its
    rho is this one times gamma^2. F(w) is the same for all clients and left out. Raises `ValueError` if b >= K for the
    whole cohort.
    """

    def compute_weights(report: CohortReport) -> Array:
        num_kept = jnp.sum(report.valid) - assumed_byzantine(num_byzantine, report, LIMIT)
        losses = jnp.where(jnp.isfinite(report.measurements), report.measurements, jnp.inf)
        costs = losses + rho * squared_norms(report.updates)
        return equal_weights(select_lowest(costs, report, num_kept))

    return from_weights(compute_weights, measure=lambda root, report: root.losses(report.updates))
