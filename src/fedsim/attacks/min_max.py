"""Min-Max and Min-Sum, attacks that need no knowledge of the rule.

Shejwalkar, Houmansadr: "Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for Federated
Learning", NDSS 2021, https://doi.org/10.14722/ndss.2021.24498
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Float

from fedsim.attacks.honest import (
    honest_deviations,
    honest_mask,
    honest_mean,
    honest_std,
    identical_updates,
    shift_mean,
)
from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.trees import gram_matrix, inner_products, nonzero, squared_distances, squared_norm, squared_norms
from fedsim.core.types import Array, PyTree, Updates

Perturbation = Annotated[
    Literal["unit", "sign", "std"],
    "the direction p: minus the honest mean as a unit vector, minus its sign, or minus the honest std",
]


def min_max(*, perturbation: Perturbation = "unit") -> Attack:
    """All malicious clients send mean + gamma p, no farther from an honest update than honest ones from each other.

    gamma is the largest with max_i |mean + gamma p - x_i| <= max_ij |x_i - x_j|. The authors' code halves steps
    starting from 10, and so stays below 20; here gamma is the minimum of the solutions of each honest client's
    quadratic equation. With one honest client they send its update; without any, zeros.
    """

    return identical_updates(lambda context: min_max_update(context, perturbation))


def min_sum(
    *,
    perturbation: Perturbation = "unit",
    bound: Annotated[
        Literal["largest", "smallest"], "of the honest clients' sums of distances: the paper's, or the authors' code's"
    ] = "largest",
) -> Attack:
    """All malicious clients send mean + gamma p, whose squared distances sum to at most an honest client's sum.

    gamma is the largest with sum_i |mean + gamma p - x_i|^2 <= max_i sum_j |x_i - x_j|^2. With r_i the distances of
    the h honest clients from their mean, the left side is sum_i r_i^2 + h gamma^2 |p|^2, and an honest client's sum is
    sum_j r_j^2 + h r_i^2. So gamma |p| = max_i r_i: the forged update is as far from the mean as the farthest honest
    one, without a search. The authors' code takes the smallest sum, and so the smallest r_i.
    With one honest client they send its update; without any, zeros.
    """

    def forge(context: AttackContext) -> PyTree:
        direction, honest = _direction(context, perturbation), honest_mask(context)
        squared_radii, squared_length = squared_norms(honest_deviations(context)), squared_norm(direction)
        smallest = jnp.where(jnp.any(honest), jnp.min(jnp.where(honest, squared_radii, jnp.inf)), 0.0)
        squared_radius = jnp.max(squared_radii) if bound == "largest" else smallest
        gamma = jnp.where(squared_length > 0, jnp.sqrt(squared_radius / nonzero(squared_length)), 0.0)
        return shift_mean(honest_mean(context), gamma, direction)

    return identical_updates(forge)


def min_max_update(context: AttackContext, perturbation: str) -> PyTree:
    """The update that malicious clients send."""
    direction, deviations = _direction(context, perturbation), honest_deviations(context)
    diameter = jnp.max(squared_distances(gram_matrix(deviations)))  # other clients' zeros are not farther
    return shift_mean(honest_mean(context), max_gamma(deviations, direction, diameter), direction)


def max_gamma(deviations: Updates, direction: PyTree, bound: Float[Array, ""]) -> Float[Array, ""]:
    """The largest gamma with |gamma p - d_i|^2 <= `bound` for all `deviations` d_i; 0 if the `direction` p is zero.

    c gamma^2 - 2 b_i gamma <= bound - a_i, with a_i = |d_i|^2, b_i = <p, d_i> and c = |p|^2. Clients that are not
    honest have a deviation of zero. Theirs is never the smallest solution: the honest b_i sum to 0, so one is <= 0.
    """
    squared_length = squared_norm(direction)
    slack = jnp.maximum(bound - squared_norms(deviations), 0.0)
    inner = inner_products(deviations, direction)
    root = jnp.sqrt(jnp.square(inner) + squared_length * slack)
    if_positive = (inner + root) / nonzero(squared_length)
    if_negative = slack / jnp.where(root > inner, root - inner, 1.0)  # the same, without cancellation
    gamma = jnp.min(jnp.where(inner > 0, if_positive, if_negative))
    return jnp.where(squared_length > 0, gamma, 0.0)


def _direction(context: AttackContext, perturbation: str) -> PyTree:
    if perturbation == "std":
        return jax.tree.map(jnp.negative, honest_std(context))
    mean = honest_mean(context)
    if perturbation == "sign":
        return jax.tree.map(lambda m: -jnp.sign(m), mean)
    length = jnp.sqrt(squared_norm(mean))
    return jax.tree.map(lambda m: -m / nonzero(length), mean)
