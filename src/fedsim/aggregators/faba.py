"""FABA.

Xia, Tao, Hao, Li: "FABA: An Algorithm for Fast Aggregation against Byzantine Attacks in Distributed Neural Networks",
IJCAI 2019, https://doi.org/10.24963/ijcai.2019/670
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.aggregators.geometry import gram_around_mean, pairwise_distances
from fedsim.aggregators.weighting import MINORITY, NumByzantine, assumed_byzantine, equal_weights, from_weights
from fedsim.core.contracts import Aggregator
from fedsim.core.selection import ranks
from fedsim.core.types import Array, CohortReport


def faba(*, num_byzantine: Annotated[NumByzantine, MINORITY] = None) -> Aggregator:
    """The mean of the updates that remain after dropping, f times, the one farthest from the mean of those that remain.

    f = `num_byzantine`, K is the number of valid clients; f is clipped to 2 f < K, and f = 0 gives the mean. Equal
    distances: the lower client id remains. Raises `ValueError` if 2 f >= K for the whole cohort.

    >>> import fedsim
    >>> rule = fedsim.aggregators.faba(num_byzantine=1)
    >>> fedsim.aggregators.apply(rule, [[0.0], [1.0], [2.0], [99.0]]).update.tolist()
    [1.0]
    """

    def compute_weights(report: CohortReport) -> Array:
        distances = pairwise_distances(report)

        def drop_farthest(_: Array, kept: Array) -> Array:
            from_mean = jnp.diagonal(gram_around_mean(distances, equal_weights(kept)))
            return kept & (ranks(from_mean, report._replace(valid=kept)) < jnp.sum(kept) - 1)

        f = assumed_byzantine(num_byzantine, report)
        return equal_weights(jax.lax.fori_loop(0, f, drop_farthest, report.valid))

    return from_weights(compute_weights)
