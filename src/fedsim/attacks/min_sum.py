"""Min-Sum, an attack that needs no knowledge of the rule.

Shejwalkar, Houmansadr: "Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for Federated
Learning", NDSS 2021, https://doi.org/10.14722/ndss.2021.24498
"""

from typing import Annotated, Literal

import jax.numpy as jnp

from fedsim.attacks.honest import honest_mask, identical_updates
from fedsim.attacks.perturbation import MEANING, Perturbation, honest_geometry, perturb_mean
from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.trees import nonzero
from fedsim.core.types import PyTree


def min_sum(
    *,
    perturbation: Annotated[Perturbation, MEANING] = "unit",
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
        geometry, honest = honest_geometry(context, perturbation), honest_mask(context)
        smallest = jnp.min(jnp.where(honest, geometry.squared_radii, jnp.inf))
        largest = jnp.max(geometry.squared_radii)
        squared_radius = largest if bound == "largest" else jnp.where(jnp.any(honest), smallest, 0.0)
        is_nonzero = geometry.squared_length > 0
        gamma = jnp.sqrt(squared_radius / nonzero(geometry.squared_length))
        return perturb_mean(geometry, jnp.where(is_nonzero, gamma, 0.0))

    return identical_updates(forge)
