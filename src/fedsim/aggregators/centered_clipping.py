"""Centered clipping.

Karimireddy, He, Jaggi: "Learning from History for Byzantine Robust Optimization", ICML 2021,
https://arxiv.org/abs/2012.10333
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.aggregators.norms import clip_factors
from fedsim.aggregators.weighting import Weighting, normalize, weights_by
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import POSITIVE, Bounds, Traced
from fedsim.core.trees import ravel_updates, unravel_update
from fedsim.core.types import Aggregate, Array, CohortReport, PyTree, Scalar


def centered_clipping(
    *,
    tau: Annotated[Scalar, Traced(ge=POSITIVE["ge"]), "clipping radius around the last aggregate"] = 10.0,
    num_iters: Annotated[int, Bounds(ge=1), "L, clipping steps per round"] = 1,
    weighting: Weighting = "equal",
) -> Aggregator:
    """The mean of the updates, clipped to distance `tau` from the last round's aggregate v.

    v <- v + the sum over clients of (u_k - v) min(1, tau / |u_k - v|) / K, `num_iters` times. v starts at zero and is
    the rule's state; the last v is the update. If clients are weighted by examples, m_k / sum m replaces 1 / K. The
    recorded weights are a diagnostic, in proportion to the last step's min(1, tau / |u_k - v|), times m_k if that
    applies.
    """

    def init(variables: PyTree, num_examples: Array, losses: Array) -> Array:
        return jnp.zeros(sum(leaf.size for leaf in jax.tree.leaves(variables)))  # v [d]

    def aggregate(state: Array, report: CohortReport, key: Array) -> tuple[Aggregate, Array]:
        rows, shares = ravel_updates(report.updates), weights_by(weighting, report.valid, report)
        v, factors = state, shares
        for _ in range(num_iters):
            differences = rows - v[None]
            factors = clip_factors(differences, tau)
            v = v + jnp.matmul(factors * shares, differences, precision="highest")
        update = jnp.where(jnp.any(report.valid), v, 0.0)
        diagnostic = factors if weighting == "equal" else factors * shares
        weights = normalize(jnp.where(report.valid, diagnostic, 0.0))
        return Aggregate(unravel_update(update, report.updates), weights), v

    return Aggregator(init, aggregate)
