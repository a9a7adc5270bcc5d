"""FLAME: clustering, clipping and noise.

Nguyen, Rieger, Chen, Yalame, Möllering, Fereidooni, Marchal, Miettinen, Mirhoseini, Zeitouni, Koushanfar, Sadeghi,
Schneider: "FLAME: Taming Backdoors in Federated Learning", USENIX Security 2022, https://arxiv.org/abs/2101.02281
"""

from typing import Annotated

import jax.numpy as jnp

from fedsim.aggregators.geometry import MAX_DISTANCE, pairwise_distances, prim
from fedsim.aggregators.norms import add_noise, clipped_mean, norms_and_median
from fedsim.aggregators.weighting import stateless
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import Traced
from fedsim.core.trees import ravel_updates
from fedsim.core.types import Aggregate, Array, CohortReport, Scalar


def flame(
    *,
    noise: Annotated[Scalar, Traced(ge=0, le=1e30), "lambda: standard deviation of the noise, in median norms"] = 0.001,
) -> Aggregator:
    """The mean of the majority cluster's updates, each clipped to the median norm of all, plus Gaussian noise.

    The majority is the cluster that HDBSCAN finds from the updates' cosine distances, with a minimum cluster size of K
    // 2 + 1, one neighbor for the core distance and a single cluster allowed: clients are joined in ascending order of
    distance (single linkage), and the first group of more than half of the clients is the cluster. K is the number of
    valid clients. The noise on each parameter has standard deviation `noise` times the median norm; a model's
    statistics get none. The weights are a diagnostic, in proportion to the clipping factors.
    """

    def aggregate(report: CohortReport, key: Array) -> Aggregate:
        norms, median = norms_and_median(report)
        cluster = majority_cluster(_cosine_distances(report, norms), report.valid)
        update, weights = clipped_mean(report, cluster, median)
        return Aggregate(add_noise(update, noise * median, key), weights)

    return stateless(aggregate)


def _cosine_distances(report: CohortReport, norms: Array) -> Array:
    """1 - cosine [K, K], as half the squared distance of the directions, which is accurate near 0, too."""
    is_zero = norms == 0
    rows = ravel_updates(report.updates) / jnp.where(is_zero, 1.0, norms)[:, None]
    return jnp.where(is_zero[:, None] | is_zero[None, :], 1.0, pairwise_distances(report._replace(updates=rows)) / 2)


def majority_cluster(distances: Array, valid: Array) -> Array:
    """The first group [K] of more than half of the `valid` clients [K] that single linkage by `distances` [K, K] forms.

    Prim's algorithm lists the clients, each with the edge that joins it to the previous ones. Consecutive clients whose
    edges are all below a length are a group at this length, so the shortest length that suffices is that of the window
    of n // 2 + 1 clients whose longest inner edge is the shortest.
    """
    positions, num_valid = jnp.arange(valid.size), jnp.sum(valid)
    order, edges = prim(distances, valid)
    size = num_valid // 2 + 1
    is_inner = (positions[None, :] > positions[:, None]) & (positions[None, :] < positions[:, None] + size)
    longest = jnp.max(jnp.where(is_inner, edges[None, :], 0.0), axis=1)
    longest = jnp.where(positions + size <= num_valid, longest, MAX_DISTANCE)
    best = jnp.argmin(longest)
    groups = jnp.cumsum((edges > longest[best]) | (positions == 0))
    return jnp.zeros_like(valid).at[order].set(groups == groups[best]) & valid
