"""SignGuard.

Xu, Huang, Song, Lan: "Byzantine-robust Federated Learning through Collaborative Malicious Gradient Filtering",
ICDCS 2022, https://arxiv.org/abs/2109.05872
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.aggregators.geometry import random_columns
from fedsim.aggregators.norms import clipped_mean, norms_and_median
from fedsim.aggregators.weighting import stateless
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import Bounds, Traced
from fedsim.core.trees import ravel_updates
from fedsim.core.types import Aggregate, Array, CohortReport, Scalar

MAX_STEPS = 300
"""Mean shift steps."""
TOLERANCE = 1e-3
"""A point has converged after a step of at most this many bandwidths."""


def signguard(
    *,
    lower: Annotated[Scalar, Traced(ge=0), "L, smallest norm that is kept, in median norms"] = 0.1,
    upper: Annotated[Scalar, Traced(ge=0), "R, largest norm that is kept, in median norms"] = 3.0,
    share: Annotated[float, Bounds(gt=0, le=1), "share of the parameters whose signs are counted"] = 0.1,
    quantile: Annotated[Scalar, Traced(gt=0, le=1), "share of the clients within a client's bandwidth"] = 0.5,
) -> Aggregator:
    """The mean of the updates that pass two filters, each clipped to the median norm M of all.

    The norm must be from L M to R M, and the client must be in the largest cluster by signs: the shares of positive,
    zero and negative values among `share` of the parameters, drawn at random in each round, each divided by the largest
    of all clients, are clustered by mean shift (`largest_cluster`). If no client passes both filters, the round is
    skipped. The weights are a diagnostic, in proportion to the clipping factors. Raises `ValueError` if L exceeds R.
    """
    is_traced = any(isinstance(bound, jax.core.Tracer) for bound in (lower, upper))
    if not is_traced and lower > upper:
        raise ValueError(f"lower: must be at most upper = {upper:g}, got {lower:g}")

    def aggregate(report: CohortReport, key: Array) -> Aggregate:
        norms, median = norms_and_median(report)
        has_usual_norm = (norms >= lower * median) & (norms <= upper * median)
        cluster = largest_cluster(_sign_features(report, share, key), report.valid, quantile)
        return Aggregate(*clipped_mean(report, report.valid & has_usual_norm & cluster, median))

    return stateless(aggregate)


def _sign_features(report: CohortReport, share: float, key: Array) -> Array:
    """Shares of positive, zero and negative values [K, 3] in a random part of each update, divided by the largest."""
    rows = ravel_updates(report.updates)
    part = random_columns(rows, max(int(share * rows.shape[1]), 1), key)
    counts = jnp.stack([jnp.sum(part > 0, axis=1), jnp.sum(part == 0, axis=1), jnp.sum(part < 0, axis=1)], axis=1)
    counts = jnp.where(report.valid[:, None], counts, 0).astype(jnp.float32)
    return counts / jnp.maximum(jnp.max(counts, axis=0), 1.0)[None]


def largest_cluster(points: Array, valid: Array, quantile: Scalar) -> Array:
    """The mask [K] of the largest cluster of the `valid` [K] `points` [K, c], by mean shift with a flat kernel.

    Comaniciu, Meer: "Mean Shift: A Robust Approach Toward Feature Space Analysis", IEEE TPAMI 2002,
    https://doi.org/10.1109/34.1000236; like scikit-learn's `MeanShift` with `cluster_all=False`, started from every
    point.

    The bandwidth is the mean distance of the points to their floor(`quantile` n)-th nearest, where each point counts as
    its own first. Each point moves to the mean of the points within a bandwidth until it converges. Of points that
    converge within a bandwidth of each other, the one with the most points around it becomes a cluster center; a point
    belongs to the nearest center if that is within a bandwidth. Of clusters of the same size, the one around the center
    with more points wins, then the one with larger coordinates.
    """
    bandwidth = _bandwidth(points, valid, quantile)
    modes = _find_modes(points, valid, bandwidth)
    is_near = (_distances(modes, points) <= bandwidth) & valid[None, :]
    coordinates = [-column for column in modes.T[::-1]]
    order = jnp.lexsort((*coordinates, -jnp.where(valid, jnp.sum(is_near, axis=1), -1)))

    centers, are_close = modes[order], _distances(modes, modes)[order][:, order] <= bandwidth

    def suppress(i: Array, is_center: Array) -> Array:
        return is_center & ~(is_center[i] & are_close[i] & (jnp.arange(is_center.size) > i))

    is_center = jax.lax.fori_loop(0, valid.size, suppress, valid[order])
    distances = jnp.where(is_center[None, :], _distances(points, centers), jnp.inf)
    labels = jnp.argmin(distances, axis=1)
    is_member = valid & (jnp.min(distances, axis=1) <= bandwidth)
    sizes = jnp.sum(is_member[:, None] & (labels[:, None] == jnp.arange(valid.size)[None, :]), axis=0)
    return is_member & (labels == jnp.argmax(sizes))


def _bandwidth(points: Array, valid: Array, quantile: Scalar) -> Array:
    distances = jnp.sort(jnp.where(valid[None, :], _distances(points, points), jnp.inf), axis=1)
    num_valid = jnp.sum(valid)
    num_nearest = jnp.maximum(jnp.floor(quantile * num_valid).astype(jnp.int32), 1)
    farthest = jnp.where(valid, distances[:, num_nearest - 1], 0.0)
    return jnp.sum(farthest) / jnp.maximum(num_valid, 1)


def _find_modes(points: Array, valid: Array, bandwidth: Array) -> Array:
    """The points [K, c] to which mean shift moves `points` [K, c]."""

    def step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, modes, is_moving = carry
        is_near = ((_distances(modes, points) <= bandwidth) & valid[None, :]).astype(points.dtype)
        total = jnp.sum(is_near, axis=1, keepdims=True)
        mean = jnp.matmul(is_near, points, precision="highest") / jnp.maximum(total, 1.0)
        moved = jnp.where(is_moving[:, None] & (total > 0), mean, modes)
        is_moving = is_moving & (jnp.linalg.norm(moved - modes, axis=1) > TOLERANCE * bandwidth)
        return count + 1, moved, is_moving

    start = jnp.asarray(0), points, valid
    return jax.lax.while_loop(lambda carry: (carry[0] < MAX_STEPS) & jnp.any(carry[2]), step, start)[1]


def _distances(a: Array, b: Array) -> Array:
    return jnp.sqrt(jnp.sum(jnp.square(a[:, None, :] - b[None, :, :]), axis=2))
