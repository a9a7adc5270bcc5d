"""RFA: robust federated aggregation by the geometric median.

Pillutla, Kakade, Harchaoui: "Robust Aggregation for Federated Learning", IEEE Transactions on Signal Processing 2022,
https://arxiv.org/abs/1912.13445
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.aggregators.weighted import by_counts, from_weights, normalised
from fedsim.core.settings import POSITIVE, Bounds, Scalar, Traced
from fedsim.core.trees import centred, gram
from fedsim.core.types import Aggregator, Array, CohortReport


def rfa(
    *,
    num_iters: Annotated[int, Bounds(ge=1), "steps of the Weiszfeld algorithm"] = 4,
    eps: Annotated[Scalar, Traced(**POSITIVE), "smoothing: distances are at least this"] = 1e-5,
) -> Aggregator:
    """The smoothed Weiszfeld algorithm from the m_k-weighted mean (Pillutla et al., Algorithm 2).

    Minimises sum_k m_k max(eps, |z - u_k|) over z. Each of `num_iters` steps averages the updates u_k with weights
    m_k / max(eps, |z - u_k|); the iterate is always a convex combination of the updates, so the whole iteration runs
    on their K x K inner products.
    """

    def weigh(state: tuple[()], report: CohortReport, key: Array) -> tuple[Array, tuple[()]]:
        del key
        prior = by_counts(report.valid, report)
        inner = gram(centred(report.updates, prior))

        def step(_: Array, weights: Array) -> Array:
            products = jnp.matmul(inner, weights, precision="highest")
            squared = jnp.diagonal(inner) - 2 * products + weights @ products
            distances = jnp.sqrt(jnp.maximum(squared, 0.0))
            return normalised(prior / jnp.maximum(eps, distances))

        return jax.lax.fori_loop(0, num_iters, step, prior), state

    return from_weights(weigh)
