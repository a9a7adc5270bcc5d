"""SMEA: smallest maximum eigenvalue averaging.

Allouah, Guerraoui, Gupta, Pinot, Stephan: "On the Privacy-Robustness-Utility Trilemma in Distributed Learning",
ICML 2023, https://arxiv.org/abs/2302.04787
"""

import jax.numpy as jnp

from fedsim.aggregators.geometry import gram_around_mean, top_eigenpair
from fedsim.aggregators.subsets import StaticByzantine, best_subset
from fedsim.aggregators.weighting import equal_weights, from_weights
from fedsim.core.contracts import Aggregator
from fedsim.core.types import Array


def smea(*, num_byzantine: StaticByzantine = None) -> Aggregator:
    """The mean of the K - f updates whose covariance has the least top eigenvalue.

    f = `num_byzantine`, K is the number of valid clients; f is clipped to 2 f < K. `fedsim.aggregators.subsets`
    documents ties and invalid clients, and raises `ValueError` if there are too many subsets. The covariance is not
    formed: up to a factor, it has the same eigenvalues as the K x K inner products around the subset's mean.
    """

    def top_eigenvalue(distances: Array, mask: Array) -> Array:
        gram = gram_around_mean(distances, equal_weights(mask))
        return top_eigenpair(jnp.where(mask[:, None] & mask[None, :], gram, 0.0))[0]

    return from_weights(lambda report: best_subset(report, num_byzantine, top_eigenvalue))
