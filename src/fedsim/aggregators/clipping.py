"""Pre-aggregators that limit the norms of updates: clipping, also to a norm of the cohort, and zeroing.

Clipping: Sun, Kairouz, Suresh, McMahan: "Can You Really Backdoor Federated Learning?", 2019,
https://arxiv.org/abs/1911.07963. ARC, adaptive robust clipping: Allouah, Guerraoui, Gupta, Jellouli, Rizk, Stephan:
"Adaptive Gradient Clipping for Robust Federated Learning", ICLR 2025, https://arxiv.org/abs/2405.14432. Zeroing:
TensorFlow Federated, `tff.aggregators.zeroing_factory`,
https://www.tensorflow.org/federated/api_docs/python/tff/aggregators/zeroing_factory
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp

from fedsim.aggregators.norms import clip_factors, largest_elements
from fedsim.aggregators.weighting import MINORITY, NumByzantine, assumed_byzantine
from fedsim.core.contracts import PreAggregator
from fedsim.core.settings import POSITIVE, Traced
from fedsim.core.trees import cast_like, expand_like, mask_invalid, safe_sqrt, squared_norms
from fedsim.core.types import Array, CohortReport, PyTree, Scalar


def clipping(
    *, threshold: Annotated[Scalar, Traced(ge=POSITIVE["ge"]), "largest norm of an update"] = 10.0
) -> PreAggregator:
    """Each update u becomes u min(1, `threshold` / |u|)."""

    def pre_aggregate(report: CohortReport, key: Array) -> CohortReport:
        return report._replace(updates=_clip(report.updates, threshold))

    return pre_aggregate


def arc(*, num_byzantine: Annotated[NumByzantine, MINORITY] = None) -> PreAggregator:
    """The floor(2 (f / K) (K - f)) updates of the largest norms are clipped to the next largest norm.

    f = `num_byzantine`, K is the number of valid clients; f is clipped to 2 f < K, and f = 0 clips nothing. Raises
    `ValueError` if 2 f >= K for the whole cohort.
    """

    def pre_aggregate(report: CohortReport, key: Array) -> CohortReport:
        num_valid = jnp.sum(report.valid)
        f = assumed_byzantine(num_byzantine, report)
        num_clipped = 2 * f * (num_valid - f) // jnp.maximum(num_valid, 1)
        norms = safe_sqrt(squared_norms(report.updates))
        descending = -jnp.sort(jnp.where(report.valid, -norms, jnp.inf))
        radius = jnp.where(num_valid > 0, descending[num_clipped], 0.0)
        return report._replace(updates=_clip(report.updates, radius))

    return pre_aggregate


def zeroing(
    *,
    threshold: Annotated[Scalar, Traced(ge=POSITIVE["ge"]), "largest norm of an update that is kept"] = 10.0,
    norm: Annotated[Literal["inf", 2], "norm: the largest absolute value of a parameter, or the Euclidean one"] = "inf",
) -> PreAggregator:
    """An update with a norm above `threshold` becomes zero; its client keeps its weight, so the mean moves to zero."""

    def pre_aggregate(report: CohortReport, key: Array) -> CohortReport:
        norms = largest_elements(report.updates) if norm == "inf" else jnp.sqrt(squared_norms(report.updates))
        return report._replace(updates=mask_invalid(report.updates, norms <= threshold))

    return pre_aggregate


def _clip(updates: PyTree, radius: Array | float) -> PyTree:
    """`updates` [K, ...], each clipped to norm `radius`; integers are rounded."""
    factors = clip_factors(updates, radius)
    return jax.tree.map(lambda u: cast_like(expand_like(factors, u) * u, u), updates)
