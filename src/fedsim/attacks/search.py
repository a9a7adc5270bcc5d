"""A search for the strength of an attack that hurts most, against the very pipeline that it faces."""

from collections.abc import Callable
from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.attacks.honest import honest_mean, sent_by_all
from fedsim.core.backend import traced_for
from fedsim.core.settings import POSITIVE, Bounds, Scalar, Traced
from fedsim.core.trees import select_clients, squared_norm
from fedsim.core.types import Aggregate, Array, PyTree, Round

Lowest = Annotated[Scalar, Traced(**POSITIVE), "the smallest strength that is tried"]
Highest = Annotated[Scalar, Traced(**POSITIVE), "the largest strength that is tried"]
NumStrengths = Annotated[int, Bounds(ge=1, le=1000), "strengths that are tried, in geometric steps"]


def grid(lowest: Scalar, highest: Scalar, number: int) -> Array:
    """`number` strengths in geometric steps from `lowest` to `highest`; `highest` alone for one."""
    steps = jnp.linspace(0.0, 1.0, number) if number > 1 else jnp.ones(1)
    low, high = jnp.log(jnp.float32(lowest)), jnp.log(jnp.float32(highest))
    return jnp.exp(low + steps * (high - low))


def outcome(update: PyTree, round_: Round) -> Aggregate:
    """What pre-aggregators and rule make of the round if all liars send `update` [...]."""
    liars = round_.corrupted & round_.report.valid
    updates = select_clients(liars, sent_by_all(update, round_), round_.report.updates)
    return round_.aggregate(round_.report._replace(updates=updates))


def strongest(lie: Callable[[Array], PyTree], strengths: Array, round_: Round) -> Array:
    """The one of `strengths` [G] whose `lie` [...] moves what the server adds farthest from the honest mean.

    One call of the pipeline, mapped over the strengths: all at once, with G times the memory of a cohort's updates, or
    on a CPU, whose caches hold those of one, one after another. The first one of equal strengths. What makes the
    aggregate not finite does not count.
    """
    mean = honest_mean(round_)

    def damage(strength: Array) -> Array:
        update = outcome(lie(strength), round_).update
        moved = squared_norm(jax.tree.map(lambda a, m: a.astype(jnp.float32) - m, update, mean))
        return jnp.where(jnp.isfinite(moved), moved, -1.0)

    mapped = jax.lax.map(damage, strengths) if traced_for() == "cpu" else jax.vmap(damage)(strengths)
    return strengths[jnp.argmax(mapped)]
