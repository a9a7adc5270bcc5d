"""A search for the most damaging strength of an attack, against the server's own pre-aggregators and rule."""

from collections.abc import Callable
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Float

from fedsim.attacks.honest import broadcast_update, honest_mean, identical_updates, malicious_mask
from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.settings import POSITIVE, Bounds, OnlyIf, Traced
from fedsim.core.trees import select_clients, squared_norm
from fedsim.core.types import Aggregate, Array, PyTree, Scalar, Updates

__all__ = ["most_damaging"]  # of `fedsim.attacks`

FIRST_STEP, SHRINKAGE = 10.0, 0.8  # of the line search

Search = Annotated[Literal["grid", "line"], "strengths evenly spaced on a log scale, or ByzFL's line search from 0"]
MinStrength = Annotated[Scalar, Traced(**POSITIVE), OnlyIf("search", "grid"), "the smallest strength that is tried"]
MaxStrength = Annotated[Scalar, Traced(**POSITIVE), OnlyIf("search", "grid"), "the largest strength that is tried"]
NumStrengths = Annotated[int, Bounds(ge=1, le=1000), "number of strengths that are tried"]


def most_damaging(
    make_forge: Callable[[AttackContext], Callable[[Array], PyTree]],
    min_strength: Scalar,
    max_strength: Scalar,
    num_strengths: int,
    search: str = "grid",
) -> Attack:
    """Malicious clients all send `make_forge(context)(strength)` with the most damaging strength of the search.

    Raises `ValueError` if the smallest strength of a grid exceeds the largest; traced numbers pass.
    """
    is_traced = any(isinstance(strength, jax.core.Tracer) for strength in (min_strength, max_strength))
    if search == "grid" and num_strengths > 1 and not is_traced and min_strength > max_strength:
        raise ValueError(f"min_strength: must be at most max_strength = {max_strength:g}, got {min_strength:g}")

    def forge(context: AttackContext) -> PyTree:
        make, mean = make_forge(context), honest_mean(context)

        def damage(strength: Array) -> Array:
            """The squared distance of the aggregate from the honest mean; -1 if it is not finite."""
            update = aggregate_with(make(strength), context).update
            squared_distance = squared_norm(jax.tree.map(lambda a, m: a.astype(jnp.float32) - m, update, mean))
            return jnp.where(jnp.isfinite(squared_distance), squared_distance, -1.0)

        if search == "line":
            return make(_line_search(damage, num_strengths))
        return make(_best_of(geometric_grid(min_strength, max_strength, num_strengths), damage))

    return identical_updates(forge)


def geometric_grid(min_strength: Scalar, max_strength: Scalar, num_strengths: int) -> Float[Array, " G"]:
    """`num_strengths` strengths, evenly spaced on a log scale; a single one is `max_strength`."""
    steps = jnp.linspace(0.0, 1.0, num_strengths) if num_strengths > 1 else jnp.ones(1)
    low, high = jnp.log(jnp.float32(min_strength)), jnp.log(jnp.float32(max_strength))
    return jnp.exp(low + steps * (high - low))


def aggregate_with(update: PyTree, context: AttackContext) -> Aggregate:
    """The aggregate of the round if all malicious clients send `update`."""
    return aggregate_forged(broadcast_update(update, context), context)


def aggregate_forged(forged: Updates, context: AttackContext) -> Aggregate:
    """The aggregate of the round if malicious clients send their rows of `forged`, with the report's dtypes."""
    updates = select_clients(malicious_mask(context), forged, context.report.updates)
    return context.aggregate(context.report._replace(updates=updates))


def _best_of(strengths: Float[Array, " G"], damage: Callable[[Array], Array]) -> Float[Array, ""]:
    """The one of `strengths` with the largest damage, of equal ones the first.

    The pipeline is mapped over the strengths: all at once, with the memory of G cohorts of updates, or one after
    another on CPUs, whose caches hold the updates of one cohort.
    """
    damages = jax.lax.map(damage, strengths) if jax.default_backend() == "cpu" else jax.vmap(damage)(strengths)
    return strengths[jnp.argmax(damages)]


def _line_search(damage: Callable[[Array], Array], num_strengths: int) -> Float[Array, ""]:
    """The best of `num_strengths` strengths, each the best one before plus a step.

    The step doubles after each strength that is better than all before, until the first that is not; from then on
    it shrinks each time. LPD-EPFL/byzfl, byzfl/attacks/attacks.py: `Optimal_InnerProductManipulation`.
    """

    def try_next(_: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        best, largest, step, expands = carry
        strength = best + step
        new = damage(strength)
        is_better = new > largest
        expands = expands & is_better
        step = step * jnp.where(expands, 2.0, SHRINKAGE)
        return jnp.where(is_better, strength, best), jnp.maximum(new, largest), step, expands

    zero = jnp.float32(0)
    start = zero, damage(zero), jnp.float32(FIRST_STEP), jnp.bool_(True)
    return jax.lax.fori_loop(1, num_strengths, try_next, start)[0]
