"""Statistics of a cohort's honest clients, for attackers that see everything.

Honest clients are valid and not malicious. All of them weigh the same, whatever their number of examples, as in the
papers. Without honest clients, mean and standard deviation are zero.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.trees import cast_like, expand_like, weighted_sum
from fedsim.core.types import Array, PyTree, Scalar, Updates

__all__ = ["honest_mask", "honest_mean", "honest_std", "identical_updates", "malicious_mask"]  # of `fedsim.attacks`


def honest_mask(context: AttackContext) -> Bool[Array, " K"]:
    """Which clients are honest."""
    return context.report.valid & ~context.malicious


def malicious_mask(context: AttackContext) -> Bool[Array, " K"]:
    """Which clients are valid and malicious: those whose forged updates reach the server."""
    return context.report.valid & context.malicious


def honest_weights(context: AttackContext) -> Float[Array, " K"]:
    """Weights of the mean over honest clients; all zero without honest clients."""
    honest = honest_mask(context)
    return honest / jnp.maximum(jnp.sum(honest), 1).astype(jnp.float32)


def honest_mean(context: AttackContext) -> PyTree:
    """Mean of the honest updates, float32."""
    return weighted_sum(honest_weights(context), to_float32(context.report.updates))


def honest_deviations(context: AttackContext, center: PyTree | None = None) -> Updates:
    """The honest updates minus `center`, by default their mean, float32; zero for other clients."""
    honest = honest_mask(context)
    center = honest_mean(context) if center is None else center
    deviation = lambda u, c: jnp.where(expand_like(honest, u), u - c[None], 0.0)
    return jax.tree.map(deviation, to_float32(context.report.updates), center)


def honest_std(context: AttackContext, sample: bool = False) -> PyTree:
    """Coordinate-wise standard deviation of the honest updates, float32.

    Divides by the number of honest clients h, or by h - 1 if `sample` (zero for a single client).
    """
    num_honest = jnp.sum(honest_mask(context))
    squares = jax.tree.map(jnp.square, honest_deviations(context))
    variance = weighted_sum(honest_weights(context), squares)
    factor = num_honest / jnp.maximum(num_honest - 1, 1) if sample else 1.0
    return jax.tree.map(lambda v: jnp.sqrt(factor * v), variance)


def shift_mean(mean: PyTree, factor: Scalar, direction: PyTree) -> PyTree:
    """`mean` [...] plus `factor` times the `direction` [...]."""
    return jax.tree.map(lambda m, d: m + factor * d, mean, direction)


def to_float32(updates: PyTree) -> PyTree:
    """Casts all leaves to float32: a counter among a model's statistics is an integer."""
    return jax.tree.map(lambda u: u.astype(jnp.float32), updates)


def cast_like_report(updates: Updates, context: AttackContext) -> Updates:
    """Casts `updates` to the dtypes of the report's updates, rounding for integers."""
    return jax.tree.map(cast_like, updates, context.report.updates)


def broadcast_update(update: PyTree, context: AttackContext) -> Updates:
    """Updates that all equal `update`, with the dtypes of the report's updates."""
    broadcast = lambda a, u: jnp.broadcast_to(a[None], u.shape)
    return cast_like_report(jax.tree.map(broadcast, update, context.report.updates), context)


def identical_updates(forge: Callable[[AttackContext], PyTree]) -> Attack:
    """A stateless attack whose malicious clients all send the update that `forge(context)` returns."""

    def forge_updates(state: PyTree, context: AttackContext, key: Array) -> tuple[Updates, PyTree]:
        return broadcast_update(forge(context), context), state

    return Attack(forge_updates=forge_updates)
