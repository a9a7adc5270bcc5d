"""FoolsGold.

Fung, Yoon, Beschastnikh: "The Limitations of Federated Learning in Sybil Settings", RAID 2020,
https://arxiv.org/abs/1808.04866
"""

from typing import Annotated, Literal

import jax.numpy as jnp

from fedsim.aggregators.geometry import cosine_similarities
from fedsim.aggregators.weighting import WHOLE_MODELS, normalize
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import POSITIVE, Traced
from fedsim.core.trees import distinct_pairs, gram_matrix, leaves_by_path, nonzero, ravel_updates, weighted_sum
from fedsim.core.types import Aggregate, Array, CohortReport, PyTree, Scalar

ROUNDING = 1e-5
"""Rounding error of a cosine in float32: if it is closer to 1, it counts as 1."""
MAX_ALPHA = 1 - 1e-6
"""The logit of 1 would be infinite."""


def foolsgold(
    *,
    kappa: Annotated[Scalar, Traced(**POSITIVE), "confidence, a factor of the logit"] = 1.0,
    parameters: Annotated[
        str, WHOLE_MODELS, 'compare only parameters with this text in their path, such as "Dense_1"; "": all'
    ] = "",
    divide_by: Annotated[
        Literal["clients", "weights", "nothing"], "what the sum of alpha_k u_k is divided by"
    ] = "clients",
) -> Aggregator:
    """The sum of alpha_k u_k, where alpha is low for clients with similar updates over the rounds (Algorithm 1).

    H_k is the sum of all updates that client k has sent. Within the cohort, v_k is the largest cosine of H_k and
    another client's (at least 0). Pardoning: cos_kj becomes cos_kj v_k / v_j if v_j > v_k. alpha_k = 1 - max_j cos_kj,
    divided by the largest alpha, and then kappa (ln(alpha / (1 - alpha)) + 1 / 2), clipped to [0, 1]. If all clients
    are alike (up to 1e-5 of a cosine), all count as sybils, and the round is skipped.

    The state has N vectors with one number for each parameter whose path contains `parameters`; raises `ValueError` if
    no path does. The weights are alpha, normalized; they give the update only with `divide_by` = "weights".
    """

    def init(variables: PyTree, num_examples: Array, losses: Array) -> Array:
        size = sum(leaf.size for leaf in leaves_by_path(variables, parameters).values())
        return jnp.zeros((num_examples.size, size))  # H [N, d']

    def aggregate(state: Array, report: CohortReport, key: Array) -> tuple[Aggregate, Array]:
        compared = [*leaves_by_path(report.updates, parameters).values()]
        state = state.at[report.client_ids].add(ravel_updates(compared))
        alpha = _compute_alpha(cosine_similarities(gram_matrix(state[report.client_ids])), report.valid, kappa)
        weights, mean = normalize(alpha), alpha / jnp.maximum(jnp.sum(report.valid), 1)
        factors = {"clients": mean, "weights": weights, "nothing": alpha}[divide_by]
        return Aggregate(weighted_sum(factors, report.updates), weights), state

    return Aggregator(init, aggregate)


def _compute_alpha(similarity: Array, valid: Array, kappa: Scalar) -> Array:
    """alpha [K] from the cosine `similarity` [K, K] of the clients' histories."""
    similarity = jnp.where(distinct_pairs(valid), similarity, 0.0)
    v = jnp.max(similarity, axis=1)
    is_pardoned = v[None, :] > v[:, None]
    pardon = jnp.where(is_pardoned, v[:, None] / jnp.where(is_pardoned, v[None, :], 1.0), 1.0)
    alpha = 1 - jnp.max(similarity * pardon, axis=1)
    alpha = jnp.where(valid & (alpha > ROUNDING), jnp.minimum(alpha, 1.0), 0.0)
    largest = jnp.max(alpha)
    alpha = jnp.minimum(alpha / nonzero(largest), MAX_ALPHA)
    is_positive = alpha > 0
    logit = jnp.log(jnp.where(is_positive, alpha / (1 - alpha), 1.0)) + 0.5
    confident = jnp.where(alpha < MAX_ALPHA, jnp.clip(kappa * logit, 0.0, 1.0), 1.0)
    return jnp.where(is_positive, confident, 0.0)
