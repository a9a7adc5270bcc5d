"""NNM: nearest neighbor mixing, as a pre-aggregator.

Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan: "Fixing by Mixing: A Recipe for Optimal Byzantine ML under
Heterogeneity", AISTATS 2023, https://arxiv.org/abs/2302.01772
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.aggregators.geometry import pairwise_distances
from fedsim.aggregators.weighting import MINORITY, NumByzantine, assumed_byzantine, mix_updates
from fedsim.core.contracts import PreAggregator
from fedsim.core.selection import ranks
from fedsim.core.types import Array, CohortReport


def nnm(*, num_byzantine: Annotated[NumByzantine, MINORITY] = None) -> PreAggregator:
    """Each update becomes the mean of the K - f updates that are nearest to it, including itself.

    f = `num_byzantine`, K is the number of valid clients; f is clipped to 2 f < K, and with f = 0 all become the
    mean. Equal distances: the lower client id is nearer; equal means after rounding
    (`geometry.pairwise_distances`). A row keeps its client's id, examples and loss. Raises `ValueError` if 2 f >= K
    for the whole cohort.
    """

    def pre_aggregate(report: CohortReport, key: Array) -> CohortReport:
        valid, rows = report.valid, jnp.arange(report.valid.size)
        num_nearest = jnp.sum(valid) - assumed_byzantine(num_byzantine, report)
        distances = jnp.where(rows[:, None] == rows[None, :], -1.0, pairwise_distances(report))  # itself comes first
        is_near = (jax.vmap(ranks, (0, None))(distances, report) < num_nearest) & valid[:, None] & valid[None, :]
        return mix_updates(report, is_near / jnp.maximum(num_nearest, 1).astype(jnp.float32))

    return pre_aggregate
