"""FLTrust.

Cao, Fang, Liu, Gong: "FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping", NDSS 2021,
https://arxiv.org/abs/2012.13995
"""

import jax
import jax.numpy as jnp

from fedsim.aggregators.weighting import normalize, stateless
from fedsim.core.contracts import Aggregator
from fedsim.core.trees import inner_products, nonzero, safe_sqrt, squared_norm, squared_norms, weighted_sum
from fedsim.core.types import Aggregate, CohortReport


def fltrust() -> Aggregator:
    """The mean of the updates, rescaled to the norm of the server's update g and weighted by clipped cosine similarity.

    g comes from training on the server's root data as a client trains. Client k's trust is max(0, cos(u_k, g)); the
    update is the sum of trust_k |g| / |u_k| u_k over the sum of trust_k. If no client is trusted, the round is skipped.
    The weights are a diagnostic: trust_k over their sum.
    """

    def aggregate(report: CohortReport) -> Aggregate:
        g = report.measurements
        norms, norm_g = safe_sqrt(squared_norms(report.updates)), safe_sqrt(squared_norm(g))
        inverse = jnp.where(norms > 0, 1 / nonzero(norms), 0.0)
        direction = jax.tree.map(lambda leaf: leaf / nonzero(norm_g), g)
        cosines = inner_products(report.updates, direction) * inverse
        trust = normalize(jnp.where(report.valid, jnp.maximum(cosines, 0.0), 0.0))
        return Aggregate(weighted_sum(trust * inverse * norm_g, report.updates), trust)

    return stateless(aggregate, measure=lambda root, report: root.train())
