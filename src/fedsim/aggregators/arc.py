"""ARC: adaptive robust clipping, as a pre-aggregator.

Allouah, Guerraoui, Gupta, Jellouli, Rizk, Stephan: "Adaptive Gradient Clipping for Robust Federated Learning", ICLR
2025, https://arxiv.org/abs/2405.14432
"""

from typing import Annotated

import jax.numpy as jnp

from fedsim.aggregators.norms import clip_updates
from fedsim.aggregators.weighting import MINORITY, NumByzantine, assumed_minority
from fedsim.core.contracts import PreAggregator
from fedsim.core.trees import safe_sqrt, squared_norms
from fedsim.core.types import Array, CohortReport


def arc(*, num_byzantine: Annotated[NumByzantine, MINORITY] = None) -> PreAggregator:
    """The floor(2 (f / K) (K - f)) updates of the largest norms are clipped to the next largest norm.

    f = `num_byzantine`, K is the number of valid clients; f is clipped to 2 f < K, and f = 0 clips nothing. Raises
    `ValueError` if 2 f >= K for the whole cohort.
    """

    def pre_aggregate(report: CohortReport, key: Array) -> CohortReport:
        del key
        num_valid = jnp.sum(report.valid)
        f = assumed_minority(num_byzantine, report)
        num_clipped = 2 * f * (num_valid - f) // jnp.maximum(num_valid, 1)
        norms = safe_sqrt(squared_norms(report.updates))
        descending = -jnp.sort(jnp.where(report.valid, -norms, jnp.inf))
        radius = jnp.where(num_valid > 0, descending[num_clipped], 0.0)
        return report._replace(updates=clip_updates(report.updates, radius))

    return pre_aggregate
