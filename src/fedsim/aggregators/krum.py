"""Krum.

Blanchard, El Mhamdi, Guerraoui, Stainer: "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
NeurIPS 2017, https://arxiv.org/abs/1703.02757
"""

from typing import Annotated

from fedsim.aggregators.multi_krum import KRUM_GUARANTEE, KRUM_LIMIT, NumNeighbors, Power, multi_krum
from fedsim.aggregators.weighting import NumByzantine
from fedsim.core.contracts import Aggregator


def krum(
    *,
    num_byzantine: Annotated[NumByzantine, KRUM_LIMIT, KRUM_GUARANTEE] = None,
    neighbors: NumNeighbors = "n-f-2",
    power: Power = "second",
) -> Aggregator:
    """The update with the least sum of squared distances to the K - f - 2 updates nearest to it.

    This is `fedsim.aggregators.multi_krum` with one selected client; that documents limits and ties.
    """
    return multi_krum(num_byzantine=num_byzantine, num_selected=1, neighbors=neighbors, power=power)
