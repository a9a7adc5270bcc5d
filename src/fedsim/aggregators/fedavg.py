"""FedAvg.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, https://arxiv.org/abs/1602.05629
"""

from fedsim.aggregators.weighted import by_counts, from_weights
from fedsim.core.types import Aggregator, Array, CohortReport


def fedavg() -> Aggregator:
    """Federated averaging: weights m_k / sum m over the valid clients."""
    return from_weights(_weigh)


def _weigh(state: tuple[()], report: CohortReport, key: Array) -> tuple[Array, tuple[()]]:
    del key
    return by_counts(report.valid, report), state
