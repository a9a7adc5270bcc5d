"""Differential privacy of a noisy mean of clipped updates, by a Rényi accountant that runs on the device.

Wang, Balle, Kasiviswanathan: "Subsampled Rényi Differential Privacy and Analytical Moments Accountant", AISTATS 2019,
https://arxiv.org/abs/1808.00087; converted to epsilon by Canonne, Kamath, Steinke: "The Discrete Gaussian for
Differential Privacy", NeurIPS 2020, https://arxiv.org/abs/2004.00010
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.core.types import Array, Scalar

ORDERS = np.asarray([*range(2, 65), 128, 256])  # alpha [A]
TERMS = np.arange(3, ORDERS[-1] + 1)  # j [J]
EVEN_TERMS = np.arange(2, TERMS[-1] + 1, 2)  # l [L]
LOG_BINOMIALS = np.asarray(  # log(alpha over j) [A, J]
    [
        [math.lgamma(a + 1) - math.lgamma(j + 1) - math.lgamma(a - j + 1) if j <= a else -np.inf for j in TERMS]
        for a in ORDERS
    ],
    np.float32,
)
GRID = np.linspace(0, 1, 1024)
"""Points of a numerical integral, as shares of its interval."""
MAX_STEP = 0.5
"""Largest distance between points at which the integral is accurate."""


class Budget(NamedTuple):
    """The privacy loss of all rounds so far."""

    num_clients: Array
    """[] N, clients with examples."""
    divergence: Array
    """[A] largest Rényi divergence, by order, between two federations that differ in one client."""


def init_budget(num_examples: Array) -> Budget:
    """The state before the first round, of clients with `num_examples` [N]."""
    return Budget(jnp.sum(num_examples > 0), jnp.zeros(len(ORDERS)))


def spend(budget: Budget, num_sampled: Array, noise_multiplier: Array) -> Budget:
    """The state after a round with `num_sampled` [] clients, sampled without replacement; unchanged if there are none.

    `noise_multiplier` [] is the noise's standard deviation divided by the sensitivity: the largest change of the mean
    by one client.
    """
    share = jnp.minimum(num_sampled / jnp.maximum(budget.num_clients, 1), 1.0)
    divergence = jnp.where(num_sampled > 0, sampled_gaussian(share, noise_multiplier), 0.0)
    return budget._replace(divergence=budget.divergence + divergence)


def sampled_gaussian(share: Array, noise_multiplier: Array) -> Array:
    """A bound [A] on the divergence of a round with a `share` [] of the clients (Theorem 27, or unsampled if lower)."""
    per_order = 0.5 / jnp.square(noise_multiplier)  # the divergence of order alpha without sampling is alpha times this
    second = jnp.minimum(math.log(4) + 2 * per_order + jnp.log(-jnp.expm1(-2 * per_order)), math.log(2) + 2 * per_order)
    first_term = 2 * jnp.log(share) + np.log(ORDERS * (ORDERS - 1) / 2) + second
    moments = _log_even_moments(noise_multiplier)
    ternary = math.log(4) + (moments[TERMS // 2 - 1] + moments[(TERMS + 1) // 2 - 1]) / 2
    powers = TERMS * jnp.log(share) + jnp.minimum(ternary, math.log(2) + (TERMS - 1) * TERMS * per_order)
    terms = jnp.where(np.isfinite(LOG_BINOMIALS), LOG_BINOMIALS + powers[None], -jnp.inf)
    log_sum = jax.nn.logsumexp(jnp.concatenate([first_term[:, None], terms], axis=1), axis=1)
    return jnp.minimum(jax.nn.softplus(log_sum) / (ORDERS - 1), ORDERS * per_order)


def _log_even_moments(noise_multiplier: Array) -> Array:
    """log E[(p / q - 1)^l] under q for l in `EVEN_TERMS` [L], where q is the noise and p the noise shifted by 1.

    The theorem writes them as differences, which float32 would lose; these are integrals of non-negative functions. inf
    if the points are too far apart.
    """
    reach = jnp.sqrt(EVEN_TERMS.astype(np.float32)) + 12
    low, high = -reach, EVEN_TERMS / noise_multiplier + reach
    step = (high - low) / (len(GRID) - 1)
    x = low[:, None] + (high - low)[:, None] * GRID[None]
    y = x / noise_multiplier - 0.5 / jnp.square(noise_multiplier)  # log(p / q)
    log_excess = jnp.maximum(y, 0.0) + jnp.log(-jnp.expm1(-jnp.abs(y)))
    integrals = jax.nn.logsumexp(EVEN_TERMS[:, None] * log_excess - jnp.square(x) / 2, axis=1)
    return jnp.where(step <= MAX_STEP, integrals - math.log(2 * math.pi) / 2 + jnp.log(step), jnp.inf)


def epsilon(budget: Budget, delta: Scalar) -> Array:
    """The least epsilon [] for `delta` over all orders (Proposition 12 of Canonne et al.)."""
    divergence = budget.divergence
    per_order = divergence + np.log1p(-1 / ORDERS) - (jnp.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    is_zero = jnp.square(delta) >= -jnp.expm1(-divergence)  # the total variation alone bounds delta
    return jnp.min(jnp.where(is_zero, 0.0, jnp.maximum(per_order, 0.0)))
