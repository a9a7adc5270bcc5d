"""MoNNA: the mean of the updates nearest to a trusted one.

Farhadkhani, Guerraoui, Gupta, Hoang, Pinot, Stephan: "Robust Collaborative Learning with Linear Gradient Overhead",
ICML 2023, https://arxiv.org/abs/2209.10931
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.aggregators.weighting import MINORITY, NumByzantine, assumed_byzantine, equal_weights, from_weights
from fedsim.core.contracts import Aggregator, init_stateless
from fedsim.core.selection import select_lowest
from fedsim.core.settings import Limit, Traced
from fedsim.core.trees import squared_norms
from fedsim.core.types import Array, CohortReport, PyTree

CLIENT_LIMIT = Limit("client_id < N", lambda n: n - 1, of="clients")


def monna(
    *,
    num_byzantine: Annotated[NumByzantine, MINORITY] = None,
    client_id: Annotated[Array | int, Traced(ge=0), CLIENT_LIMIT, "id of the trusted client"] = 0,
) -> Aggregator:
    """The mean of the K - f updates that are nearest to that of a trusted client, including its own.

    f = `num_byzantine`, K is the number of valid clients; f is clipped to 2 f < K, and f = 0 gives the mean. Equal
    distances: the lower client id is nearer. In the paper each client trusts itself; here the server trusts the client
    `client_id`. The round is skipped if that client is not in the cohort or does not answer; rows that merge clients,
    as those of `bucketing`, have the ids of others. Raises `ValueError` if 2 f >= K for the whole cohort, or if no
    client has this id.

    >>> import fedsim
    >>> rule = fedsim.aggregators.monna(num_byzantine=1, client_id=1)
    >>> fedsim.aggregators.apply(rule, [[0.0], [1.0], [2.0], [99.0]]).update.tolist()
    [1.0]
    """

    def init(variables: PyTree, num_examples: Array, losses: Array) -> PyTree:
        CLIENT_LIMIT.check("client_id", client_id, num_examples.size)
        return init_stateless(variables, num_examples, losses)

    def compute_weights(report: CohortReport) -> Array:
        is_trusted = report.valid & (report.client_ids == client_id)
        pivot = jnp.argmax(is_trusted)
        from_pivot = squared_norms(jax.tree.map(lambda u: u - u[pivot][None], report.updates))
        distances = jnp.where(is_trusted, -1.0, from_pivot)  # itself comes first
        num_nearest = jnp.sum(report.valid) - assumed_byzantine(num_byzantine, report)
        return equal_weights(select_lowest(distances, report, num_nearest) * jnp.any(is_trusted))

    return from_weights(compute_weights, init)
