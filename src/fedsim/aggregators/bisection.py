"""The largest number at which an increasing function stays below a bound.

Between two float32 numbers lie finitely many others, so halving their number ends with the exact one. A point on the
chord is usually closer (regula falsi; "Illinois": Dowell and Jarratt, BIT 11, 1971, https://doi.org/10.1007/BF01934364).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedsim.core.sorting import ASCENDING
from fedsim.core.types import Array, Scalar

GUESS_MARGIN = 2.0**-13
"""Relative distance of the first two probes from a guess."""


class _Bracket(NamedTuple):
    """`fn` is below the bound at `low`, and not at `high`."""

    low: Array
    """[] int32 key of a number, in the order of numbers."""
    high: Array
    """[] int32."""
    low_excess: Array
    """[] `fn` at `low` minus the bound; halved where `high` moves twice in a row, and the like for `high_excess`."""
    high_excess: Array
    """[]."""
    low_moved: Array
    """[] bool: `low` moved last."""
    step: Array
    """[] int32."""


def largest_below(
    fn: Callable[[Array], Array], bound: Scalar, low: Array, high: Array, guess: Array | None = None
) -> Array:
    """The largest float32 x [] from `low` to `high` with `fn(x)` < `bound`, where `fn` does not decrease.

    `fn(low)` has to be below the bound. The result depends on nothing but `fn`; a `guess` close to it saves time: five
    evaluations instead of about 15, of at most about 90. If `low` exceeds `high`, it is the result.

    >>> import jax.numpy as jnp
    >>> float(largest_below(lambda x: x * x, 9.0, jnp.float32(0), jnp.float32(100)))
    2.999999761581421
    """

    def choose(bracket: _Bracket) -> Array:
        low, high = ASCENDING.to_values(bracket.low), ASCENDING.to_values(bracket.high)
        chord = low + (high - low) * (bracket.low_excess / (bracket.low_excess - bracket.high_excess))
        middle = (bracket.low & bracket.high) + ((bracket.low ^ bracket.high) >> 1)
        probe = jnp.where((bracket.step % 3 != 0) & jnp.isfinite(chord), ASCENDING.to_keys(chord), middle)
        if guess is not None:
            factor = jnp.where(bracket.step == 1, 1 - GUESS_MARGIN, 1 + GUESS_MARGIN)
            use_guess = (bracket.step < 3) & jnp.isfinite(guess)
            probe = jnp.where(use_guess, ASCENDING.to_keys(guess * factor), probe)
        probe = jnp.where(bracket.step == 0, bracket.high - 1, probe)
        return jnp.clip(probe, bracket.low + 1, bracket.high - 1)

    def narrow(bracket: _Bracket) -> _Bracket:
        probe = choose(bracket)
        value = fn(ASCENDING.to_values(probe))
        is_below, excess = value < bound, jnp.asarray(value - bound, jnp.float32)
        return _Bracket(
            jnp.where(is_below, probe, bracket.low),
            jnp.where(is_below, bracket.high, probe),
            jnp.where(is_below, excess, bracket.low_excess * jnp.where(bracket.low_moved, 1.0, 0.5)),
            jnp.where(is_below, bracket.high_excess * jnp.where(bracket.low_moved, 0.5, 1.0), excess),
            is_below,
            bracket.step + 1,
        )

    low_excess = jnp.asarray(-bound, jnp.float32)  # as if fn(low) were 0
    start = _Bracket(
        ASCENDING.to_keys(low),
        ASCENDING.to_keys(high) + 1,
        low_excess,
        jnp.float32(jnp.inf),
        jnp.bool_(False),
        jnp.int32(0),
    )
    return ASCENDING.to_values(jax.lax.while_loop(lambda b: b.low + 1 < b.high, narrow, start).low)
