"""Attacks of published programs, as those programs define them."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr

from fedsim import Attack, AttackContext
from fedsim.attacks.honest import honest_mean, honest_std, identical_updates


def flanders_lie() -> Attack:
    """mean - z sqrt(std) over all clients, with z = Phi((n - m - s) / (n - m)) of n clients, m of them malicious.

    flwrlabs/flower, baselines/flanders/flanders/attacks.py: lie_attack. ALIE has the inverse of Phi and std.
    """

    def forge(context: AttackContext) -> Any:
        n, m = (jnp.sum(context.report.valid & mask) for mask in (jnp.ones(1, bool), context.malicious))
        z = ndtr((n - m - (n // 2 + 1 - m)) / (n - m))
        everyone = context._replace(malicious=jnp.zeros_like(context.malicious))
        mean, std = honest_mean(everyone), honest_std(everyone)
        return jax.tree.map(lambda center, spread: center - z * jnp.sqrt(spread), mean, std)

    return identical_updates(forge)
