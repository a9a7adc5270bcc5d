"""Learning rates over rounds; t is the number of completed rounds.

A factory takes R, the rounds of the run, only if the rates depend on it. If not, more rounds continue the same run.
"""

from typing import Annotated

import jax.numpy as jnp

from fedsim.core.contracts import Schedule
from fedsim.core.settings import Traced
from fedsim.core.types import Array, Scalar


def constant() -> Schedule:
    """The configured rate in all rounds."""
    return lambda learning_rate, t: learning_rate


def step(
    *,
    every: Annotated[Array | int, Traced(ge=1), "rounds between two steps"] = 100,
    factor: Annotated[Scalar, Traced(gt=0, le=1), "factor of each step"] = 0.1,
) -> Schedule:
    """The rate times factor^(t // every)."""
    return lambda learning_rate, t: learning_rate * factor ** jnp.floor_divide(t, every)


def exponential(*, decay: Annotated[Scalar, Traced(gt=0, le=1), "factor of each round"] = 0.99) -> Schedule:
    """The rate times decay^t."""
    return lambda learning_rate, t: learning_rate * decay**t


def cosine(
    num_rounds: int,
    *,
    final_fraction: Annotated[Scalar, Traced(ge=0, le=1), "fraction of the rate after R rounds"] = 0.0,
) -> Schedule:
    """The rate times f + (1 - f) (1 + cos(pi t / R)) / 2, with f = `final_fraction`: half a period of a cosine.

    Loshchilov, Hutter: "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017,
    https://arxiv.org/abs/1608.03983, without the restarts
    """

    def rate(learning_rate: Scalar, t: Array) -> Scalar:
        cosine = (1 + jnp.cos(jnp.pi * t / max(num_rounds, 1))) / 2
        return learning_rate * (final_fraction + (1 - final_fraction) * cosine)

    return rate
