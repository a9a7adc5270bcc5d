"""Clipping to a norm that tracks a quantile of the clients' norms.

Andrew, Thakkar, McMahan, Ramaswamy: "Differentially Private Learning with Adaptive Clipping", NeurIPS 2021,
https://arxiv.org/abs/1905.03871
"""

import math
from typing import Annotated, NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from fedsim.aggregators.norms import clip_factors, largest_elements
from fedsim.aggregators.weighting import Weighting, normalize, weights_by
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import POSITIVE, Traced
from fedsim.core.trees import mask_invalid, squared_norms, weighted_sum
from fedsim.core.types import Aggregate, Array, CohortReport, PyTree, Scalar

ZEROING = {"quantile": 0.98, "learning_rate": math.log(10)}
"""Of `tff.learning.robust_aggregator`: an estimate that follows the largest values within a few rounds."""


class AdaptiveState(NamedTuple):
    """Estimates of quantiles for the next round."""

    clip: Float[Array, ""]
    """C, the norm to which updates are clipped."""
    zero: Float[Array, ""]
    """Z: updates with an element beyond 2 Z + 1 are zeroed."""


def adaptive_clipping(
    *,
    quantile: Annotated[Scalar, Traced(ge=0, le=1), "gamma, share of the clients that are not to be clipped"] = 0.5,
    threshold: Annotated[Scalar, Traced(**POSITIVE), "C of the first round, largest norm of an update"] = 0.1,
    learning_rate: Annotated[Scalar, Traced(ge=0, le=10), "eta, step of ln C in a round"] = 0.2,
    zeroing: Annotated[
        bool, "zero updates with extreme elements before clipping, as TensorFlow Federated does"
    ] = False,
    weighting: Weighting = "equal",
) -> Aggregator:
    """The mean of u_k min(1, C / |u_k|), where C tracks the gamma-quantile of the clients' norms.

    After each round C <- C exp(-eta (b - gamma)), where b is the share of clients with |u_k| <= C. `info` has the
    `threshold` C. There is no noise: neither on the mean nor on b, so there is no differential privacy.

    With `zeroing`, an update whose largest absolute value exceeds 2 Z + 1 is zero and keeps its weight. Z starts at 10
    and tracks the 0.98-quantile of these values with eta = ln 10. The recorded weights are a diagnostic, in proportion
    to min(1, C / |u_k|), 0 for zeroed updates, times m_k if clients are weighted by examples. If all updates
    are zeroed, they are those without clipping, so that the round counts.
    """

    def init(variables: PyTree, num_examples: Array, losses: Array) -> AdaptiveState:
        return AdaptiveState(jnp.asarray(threshold, jnp.float32), jnp.asarray(10.0))

    def aggregate(state: AdaptiveState, report: CohortReport, key: Array) -> tuple[Aggregate, AdaptiveState]:
        valid, updates, kept, zero = report.valid, report.updates, report.valid, state.zero
        if zeroing:
            largest = largest_elements(updates)
            kept = valid & (largest <= 2 * zero + 1)
            updates, zero = mask_invalid(updates, kept), _track(zero, largest, valid, **ZEROING)
        factors, shares = clip_factors(updates, state.clip), weights_by(weighting, valid, report)
        diagnostic = normalize(jnp.where(kept, factors if weighting == "equal" else factors * shares, 0.0))
        diagnostic = jnp.where(jnp.any(kept), diagnostic, shares)  # weights of zero would skip the round
        clip = _track(state.clip, jnp.sqrt(squared_norms(updates)), valid, quantile, learning_rate)
        update = weighted_sum(factors * shares, updates)
        return Aggregate(update, diagnostic, {"threshold": state.clip}), AdaptiveState(clip, zero)

    return Aggregator(init, aggregate)


def _track(estimate: Array, values: Array, valid: Array, quantile: Scalar, learning_rate: Scalar) -> Array:
    """The next `estimate` [] of a quantile of the `values` [K] of valid clients, by a geometric step."""
    below = jnp.sum(valid & (values <= estimate)) / jnp.maximum(jnp.sum(valid), 1)
    moved = jnp.clip(estimate * jnp.exp(-learning_rate * (below - quantile)), POSITIVE["ge"], POSITIVE["le"])
    return jnp.where(jnp.any(valid), moved, estimate)
