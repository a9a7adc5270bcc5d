"""FedAvg.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, https://arxiv.org/abs/1602.05629
"""

from fedsim.aggregators.weighting import Weighting, from_weights, weights_by
from fedsim.core.contracts import Aggregator


def fedavg(*, weighting: Weighting = "examples") -> Aggregator:
    """Federated averaging: the mean over the valid clients with weights m_k / sum m, or equal ones.

    >>> import fedsim
    >>> fedsim.aggregators.apply(fedsim.aggregators.fedavg(), [[0.0, 4.0], [8.0, 0.0]], num_examples=[3, 1]).update
    Array([2., 3.], dtype=float32)
    """
    return from_weights(lambda report: weights_by(weighting, report.valid, report))
