"""The direction in which Min-Max and Min-Sum move away from the honest mean."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from fedsim.attacks.honest import honest_deviations, honest_mean, honest_std
from fedsim.core.contracts import AttackContext
from fedsim.core.trees import nonzero, squared_norm, squared_norms
from fedsim.core.types import Array, PyTree, Updates

Perturbation = Literal["unit", "sign", "std"]
MEANING = "the direction p: minus the honest mean as a unit vector, minus its sign, or minus the honest std"


class Geometry(NamedTuple):
    """The honest updates relative to their mean, and a direction p."""

    mean: PyTree
    """Of the honest updates."""
    direction: PyTree
    """p."""
    deviations: Updates
    """From the mean; zero for clients that are not honest."""
    squared_radii: Float[Array, " K"]
    """Squared norms of the deviations."""
    squared_length: Float[Array, ""]
    """Squared norm of p."""


def honest_geometry(context: AttackContext, perturbation: Perturbation) -> Geometry:
    """The honest updates relative to their mean, and the direction `perturbation`."""
    mean, deviations = honest_mean(context), honest_deviations(context)
    direction = _direction(mean, honest_std(context), perturbation)
    return Geometry(mean, direction, deviations, squared_norms(deviations), squared_norm(direction))


def _direction(mean: PyTree, std: PyTree, perturbation: Perturbation) -> PyTree:
    if perturbation == "std":
        return jax.tree.map(jnp.negative, std)
    if perturbation == "sign":
        return jax.tree.map(lambda m: -jnp.sign(m), mean)
    length = jnp.sqrt(squared_norm(mean))
    return jax.tree.map(lambda m: -m / nonzero(length), mean)


def perturb_mean(geometry: Geometry, gamma: Float[Array, ""]) -> PyTree:
    """The honest mean plus `gamma` times p."""
    return jax.tree.map(lambda m, p: m + gamma * p, geometry.mean, geometry.direction)
