"""Pre-aggregators that limit the norm of an update: clipping to it, and zeroing beyond it.

Clipping: Sun, Kairouz, Suresh, McMahan: "Can You Really Backdoor Federated Learning?", 2019,
https://arxiv.org/abs/1911.07963. Zeroing: TensorFlow Federated, `tff.aggregators.zeroing_factory`,
https://www.tensorflow.org/federated/api_docs/python/tff/aggregators/zeroing_factory
"""

from typing import Annotated, Literal

import jax.numpy as jnp

from fedsim.aggregators.norms import clip_updates, largest_elements
from fedsim.core.contracts import PreAggregator
from fedsim.core.server import mask_invalid
from fedsim.core.settings import POSITIVE, Traced
from fedsim.core.trees import squared_norms
from fedsim.core.types import Array, CohortReport, Scalar


def clipping(
    *, threshold: Annotated[Scalar, Traced(ge=POSITIVE["ge"]), "largest norm of an update"] = 10.0
) -> PreAggregator:
    """Each update u becomes u min(1, `threshold` / |u|)."""

    def pre_aggregate(report: CohortReport, key: Array) -> CohortReport:
        del key
        return report._replace(updates=clip_updates(report.updates, threshold))

    return pre_aggregate


def zeroing(
    *,
    threshold: Annotated[Scalar, Traced(ge=POSITIVE["ge"]), "largest norm of an update that is kept"] = 10.0,
    norm: Annotated[Literal["inf", 2], "norm: the largest absolute value of a parameter, or the Euclidean one"] = "inf",
) -> PreAggregator:
    """An update with a norm above `threshold` becomes zero; its client keeps its weight, so the mean moves to zero."""

    def pre_aggregate(report: CohortReport, key: Array) -> CohortReport:
        del key
        norms = largest_elements(report.updates) if norm == "inf" else jnp.sqrt(squared_norms(report.updates))
        return report._replace(updates=mask_invalid(report.updates, norms <= threshold))

    return pre_aggregate
