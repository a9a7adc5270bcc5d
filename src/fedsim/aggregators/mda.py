"""MDA: minimum diameter averaging.

El Mhamdi, Guerraoui, Guirguis, Hoang, Rouault: "Genuinely Distributed Byzantine Machine Learning", PODC 2020,
https://arxiv.org/abs/1905.03853, after Rousseeuw: "Multivariate Estimation with High Breakdown Point", 1985
"""

import jax.numpy as jnp

from fedsim.aggregators.subsets import StaticByzantine, best_subset
from fedsim.aggregators.weighting import from_weights
from fedsim.core.contracts import Aggregator
from fedsim.core.types import Array


def mda(*, num_byzantine: StaticByzantine = None) -> Aggregator:
    """The mean of the K - f updates with the least diameter, which is the largest distance between two of them.

    f = `num_byzantine`, K is the number of valid clients; f is clipped to 2 f < K. `fedsim.aggregators.subsets`
    documents ties and invalid clients, and raises `ValueError` if there are too many subsets.
    """

    def diameter(distances: Array, mask: Array) -> Array:
        return jnp.max(jnp.where(mask[:, None] & mask[None, :], distances, 0.0))

    return from_weights(lambda report: best_subset(report, num_byzantine, diameter))
