"""RFA: robust federated aggregation by the geometric median.

Pillutla, Kakade, Harchaoui: "Robust Aggregation for Federated Learning", IEEE Transactions on Signal Processing 2022,
https://arxiv.org/abs/1912.13445
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp

from fedsim.aggregators.geometry import distances_to_mean, iterate_weights
from fedsim.aggregators.weighting import Weighting, from_weights, normalize, weights_by
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import POSITIVE, Bounds, Traced
from fedsim.core.trees import safe_sqrt, squared_norms
from fedsim.core.types import Array, CohortReport, Scalar


def rfa(
    *,
    num_iters: Annotated[int, Bounds(ge=1), "Weiszfeld iterations"] = 4,
    eps: Annotated[Scalar, Traced(**POSITIVE), "smoothing: distances are at least this"] = 1e-5,
    start: Annotated[Literal["mean", "zero"], "first z: the weighted mean, or zero as in ByzFL"] = "mean",
    weighting: Weighting = "examples",
) -> Aggregator:
    """The geometric median, by the smoothed Weiszfeld algorithm from the weighted mean.

    Minimizes sum_k m_k max(eps, |z - u_k|) over z. Each of `num_iters` iterations averages the updates u_k with weights
    m_k / max(eps, |z - u_k|); if clients are weighted equally, m_k is 1. All iterates are convex combinations of the
    updates, so the algorithm runs on their K x K inner products; after a `start` at zero, from the first iteration on.

    >>> import fedsim
    >>> rule = fedsim.aggregators.rfa(num_iters=50)
    >>> update = fedsim.aggregators.apply(rule, [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [99.0, 99.0]]).update
    >>> [round(value, 2) for value in update.tolist()]
    [0.5, 0.5]
    """

    def compute_weights(report: CohortReport) -> Array:
        first = prior = weights_by(weighting, report.valid, report)
        if start == "zero":
            first = normalize(prior / jnp.maximum(eps, safe_sqrt(squared_norms(report.updates))))

        def weiszfeld(gram: Array) -> Array:
            def step(_: Array, weights: Array) -> Array:
                distances = safe_sqrt(distances_to_mean(gram, weights))
                return normalize(prior / jnp.maximum(eps, distances))

            return jax.lax.fori_loop(int(start == "zero"), num_iters, step, first)

        return iterate_weights(report, prior, weiszfeld)

    return from_weights(compute_weights)
