"""Distances between the clients of a cohort."""

import jax
import jax.numpy as jnp

from fedsim.aggregators.weighted import equally
from fedsim.core.client import lockstep_max
from fedsim.core.trees import LOST, centred, direct_distances, gram, squared_distances
from fedsim.core.types import Array, CohortReport


def distances_between(report: CohortReport) -> Array:
    """Squared distances [K, K] of the updates.

    Symmetric to the last bit: two clients that are each other's nearest are equally far, and a tie is known as one.
    """
    distances = distances_around(report, equally(report.valid))
    return (distances + distances.T) / 2


def distances_around(report: CohortReport, weights: Array) -> Array:
    """Squared distances [K, K] of the updates, right to some digits for all valid pairs.

    From inner products around the mean with `weights` [K]; where two updates are so near beside their own size that
    float32 would lose it that way (liars that say the same, a tight group beside a large outlier), directly.
    """
    inner = gram(centred(report.updates, weights))
    norms, distances = jnp.diagonal(inner), squared_distances(inner)
    pairs = report.valid[:, None] & report.valid[None, :] & ~jnp.eye(len(norms), dtype=bool)
    lost = pairs & (distances < LOST * (norms[:, None] + norms[None, :]))
    lost = lost | lost.T
    return jax.lax.cond(
        lockstep_max(jnp.any(lost)),  # of all runs in lockstep: a condition of each run would compute both, always
        lambda: jnp.where(lost, direct_distances(report.updates, lost), distances),
        lambda: distances,
    )


def products_around(distances: Array, weights: Array) -> Array:
    """Inner products [K, K] of the updates around their mean with `weights` [K], from squared `distances` [K, K].

    A client without weight does not matter for the others: beside a large outlier a tight group keeps its digits.
    """
    to_all = jnp.matmul(distances, weights, precision="highest")
    return (to_all[:, None] + to_all[None, :] - distances - weights @ to_all) / 2
