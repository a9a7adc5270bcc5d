"""Clipping to a norm, as a pre-aggregator.

Sun, Kairouz, Suresh, McMahan: "Can You Really Backdoor Federated Learning?", 2019, https://arxiv.org/abs/1911.07963
"""

from typing import Annotated

from fedsim.aggregators.norms import clip_updates
from fedsim.core.contracts import PreAggregator
from fedsim.core.settings import POSITIVE, Traced
from fedsim.core.types import Array, CohortReport, Scalar


def clipping(
    *, threshold: Annotated[Scalar, Traced(ge=POSITIVE["ge"]), "largest norm of an update"] = 10.0
) -> PreAggregator:
    """Each update u becomes u min(1, `threshold` / |u|)."""

    def pre_aggregate(report: CohortReport, key: Array) -> CohortReport:
        del key
        return report._replace(updates=clip_updates(report.updates, threshold))

    return pre_aggregate
