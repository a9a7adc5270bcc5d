"""Min-Max, an attack that needs no knowledge of the rule.

Shejwalkar, Houmansadr: "Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for Federated
Learning", NDSS 2021, https://doi.org/10.14722/ndss.2021.24498
"""

from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Float

from fedsim.attacks.honest import identical_updates
from fedsim.attacks.perturbation import MEANING, Geometry, Perturbation, honest_geometry, perturb_mean
from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.trees import gram_matrix, inner_products, nonzero, squared_distances
from fedsim.core.types import Array, PyTree


def min_max(*, perturbation: Annotated[Perturbation, MEANING] = "unit") -> Attack:
    """All malicious clients send mean + gamma p, no farther from an honest update than honest ones from each other.

    gamma is the largest with max_i |mean + gamma p - x_i| <= max_ij |x_i - x_j|. The authors' code halves steps
    starting from 10, and so stays below 20; here gamma is the minimum of the solutions of each honest client's
    quadratic equation. With one honest client they send its update; without any, zeros.
    """

    return identical_updates(lambda context: min_max_update(context, perturbation))


def min_max_update(context: AttackContext, perturbation: Perturbation) -> PyTree:
    """The update that malicious clients send."""
    geometry = honest_geometry(context, perturbation)
    diameter = jnp.max(squared_distances(gram_matrix(geometry.deviations)))  # other clients' zeros are not farther
    return perturb_mean(geometry, max_gamma(geometry, diameter))


def max_gamma(geometry: Geometry, bound: Float[Array, ""]) -> Float[Array, ""]:
    """The largest gamma with |gamma p - d_i|^2 <= `bound` for all deviations d_i; 0 if p is zero.

    c gamma^2 - 2 b_i gamma <= bound - a_i, with a_i = |d_i|^2, b_i = <p, d_i> and c = |p|^2. Clients that are not
    honest have a deviation of zero. Theirs is never the smallest solution: the honest b_i sum to 0, so one is <= 0.
    """
    slack = jnp.maximum(bound - geometry.squared_radii, 0.0)
    inner = inner_products(geometry.deviations, geometry.direction)
    root = jnp.sqrt(jnp.square(inner) + geometry.squared_length * slack)
    if_positive = (inner + root) / nonzero(geometry.squared_length)
    if_negative = slack / jnp.where(root > inner, root - inner, 1.0)  # the same, without cancellation
    gamma = jnp.min(jnp.where(inner > 0, if_positive, if_negative))
    return jnp.where(geometry.squared_length > 0, gamma, 0.0)
