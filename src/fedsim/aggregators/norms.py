"""Norms of updates, clipping to a norm, and Gaussian noise."""

import jax
import jax.numpy as jnp
import optax

from fedsim.aggregators.weighting import normalize, weights_by
from fedsim.core.trees import nonzero, safe_sqrt, squared_norms, weighted_sum
from fedsim.core.types import Array, CohortReport, PyTree, Scalar, Variables


def norms_and_median(report: CohortReport) -> tuple[Array, Array]:
    """The norms [K] of the updates, and the median norm [] of the valid clients; 0 if no client is valid."""
    norms = safe_sqrt(squared_norms(report.updates))
    median = jnp.nanmedian(jnp.where(report.valid, norms, jnp.nan))
    return norms, jnp.where(jnp.any(report.valid), median, 0.0)


def largest_elements(updates: PyTree) -> Array:
    """The largest absolute value [K] in each update of `updates` [K, ...]."""
    leaf = lambda u: jnp.max(jnp.abs(u.astype(jnp.float32)), axis=tuple(range(1, u.ndim)), initial=0.0)
    return jnp.max(jnp.stack([leaf(u) for u in jax.tree.leaves(updates)]), axis=0)


def clip_factors(updates: PyTree, radius: Array | float) -> Array:
    """The factors [K], from 0 to 1, that clip each update of `updates` [K, ...] to norm `radius`."""
    norms = safe_sqrt(squared_norms(updates))
    return jnp.where(norms > radius, radius / nonzero(norms), 1.0)


def clipped_mean(report: CohortReport, mask: Array, radius: Scalar, weighting: str = "equal") -> tuple[PyTree, Array]:
    """The mean by `weighting` of the updates of clients in `mask` [K], each clipped to norm `radius`; weights [K].

    The weights are a diagnostic, in proportion to min(1, radius / norm), times m_k if clients are weighted by examples.
    """
    factors = jnp.where(mask, clip_factors(report.updates, radius), 0.0)
    shares = weights_by(weighting, mask, report)
    weights = normalize(factors if weighting == "equal" else factors * shares)
    return weighted_sum(factors * shares, report.updates), weights


def add_noise(update: Variables, std: Array, key: Array) -> Variables:
    """`update` with Gaussian noise of standard deviation `std` [] on each parameter, but not on its statistics."""
    keys = optax.tree_utils.tree_split_key_like(key, update.params)
    add = lambda p, k: p + std.astype(p.dtype) * jax.random.normal(k, p.shape, p.dtype)
    return update._replace(params=jax.tree.map(add, update.params, keys))
