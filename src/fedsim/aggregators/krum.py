"""Krum and Multi-Krum.

Blanchard, El Mhamdi, Guerraoui, Stainer: "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
NeurIPS 2017, https://arxiv.org/abs/1703.02757
"""

from typing import Annotated, Literal

import jax.numpy as jnp

from fedsim.aggregators.geometry import pairwise_distances
from fedsim.aggregators.weighting import NumByzantine, Weighting, from_weights, weights_by
from fedsim.core.contracts import Aggregator
from fedsim.core.selection import select_lowest
from fedsim.core.settings import Limit, Traced
from fedsim.core.trees import sum_of_nearest
from fedsim.core.types import Array, CohortReport

NumNeighbors = Annotated[Literal["n-f-2", "n-f-1"], "neighbors in a score: as in the paper, or as in ByzFL"]
Power = Annotated[
    Literal["second", "fourth"], "power of the distances in a score: the paper's, or that of Bucketing's authors' code"
]
KRUM_LIMIT = Limit("f + 2 <= K", lambda k: k - 2)
KRUM_GUARANTEE = Limit("2 f + 3 <= K", lambda k: (k - 3) // 2, is_required=False)
SELECTION_LIMIT = Limit("num_selected <= K", lambda k: k)


def multi_krum(
    *,
    num_byzantine: Annotated[NumByzantine, KRUM_LIMIT, KRUM_GUARANTEE] = None,
    num_selected: Annotated[
        Array | int | None, Traced(ge=1), SELECTION_LIMIT, "clients that are averaged; default: K - f"
    ] = None,
    neighbors: NumNeighbors = "n-f-2",
    power: Power = "second",
    weighting: Weighting = "examples",
) -> Aggregator:
    """The mean of the `num_selected` updates that are closest to their neighbors, weighted by examples or equally.

    A client's score is the sum of squared distances to the K - f - 2 updates nearest to its own; f = `num_byzantine`, K
    is the number of valid clients. By default f = (K - 3) // 2, the largest f that Krum tolerates, and K - f clients
    are selected. What does not fit a round's K is clipped: f >= 0, at least one neighbor, at least one selected client.
    Equal scores: the lower client id wins. Raises `ValueError` if f + 2 > K or `num_selected` > K for the whole cohort.

    >>> import fedsim
    >>> rule = fedsim.aggregators.multi_krum(num_byzantine=1, num_selected=2)
    >>> fedsim.aggregators.apply(rule, [[0.0], [1.0], [1.5], [4.0], [99.0]]).weights
    Array([0. , 0.5, 0.5, 0. , 0. ], dtype=float32)
    """

    def compute_weights(report: CohortReport) -> Array:
        valid = report.valid
        KRUM_LIMIT.check("num_byzantine", num_byzantine, valid.size)
        SELECTION_LIMIT.check("num_selected", num_selected, valid.size)
        num_valid = jnp.sum(valid)
        f = jnp.clip((num_valid - 3) // 2 if num_byzantine is None else num_byzantine, 0, num_valid)
        num_neighbors = jnp.minimum(jnp.maximum(num_valid - f - int(neighbors[-1]), 1), num_valid - 1)
        num_chosen = jnp.maximum(num_valid - f if num_selected is None else num_selected, 1)

        distances = pairwise_distances(report)
        distances = distances if power == "second" else distances**2
        scores = sum_of_nearest(distances, valid, num_neighbors)
        return weights_by(weighting, select_lowest(scores, report, num_chosen), report)

    return from_weights(compute_weights)


def krum(
    *,
    num_byzantine: Annotated[NumByzantine, KRUM_LIMIT, KRUM_GUARANTEE] = None,
    neighbors: NumNeighbors = "n-f-2",
    power: Power = "second",
) -> Aggregator:
    """The update with the least sum of squared distances to the K - f - 2 updates nearest to it.

    This is `fedsim.aggregators.multi_krum` with one selected client; that documents limits and ties.
    """
    return multi_krum(num_byzantine=num_byzantine, num_selected=1, neighbors=neighbors, power=power, weighting="equal")
