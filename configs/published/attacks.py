"""Attacks of published programs, as those programs define them."""

from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr

from fedsim import Attack, AttackContext
from fedsim.attacks import honest_mean, honest_std, identical_updates
from fedsim.core.settings import Traced


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


def no_momentum(
    *,
    beta: Annotated[float, Traced(ge=0, lt=1), "decay of the clients' momentum"] = 0.9,
    scale: Annotated[float, Traced(), "multiplies the update; -1 flips its sign"] = 1.0,
) -> Attack:
    """Malicious clients send scale x their update without momentum, for worker momentum: scale (m_t - beta m_(t-1)).

    epfml/byzantine-robust-noniid-optimizer, codes/worker.py: honest workers alone are `MomentumWorker`s. All
    clients must take part in each round.
    """

    def init(variables: Any, num_examples: Any) -> Any:
        return jax.tree.map(lambda w: jnp.zeros((len(num_examples), *w.shape), w.dtype), variables)

    def forge(state: Any, context: AttackContext, key: Any) -> tuple[Any, Any]:
        del key
        ids, updates = context.report.client_ids, context.report.updates
        forged = jax.tree.map(lambda m, last: scale * (m - beta * last[ids]), updates, state)
        return forged, jax.tree.map(lambda m, last: last.at[ids].set(m), updates, state)

    return Attack(init, forge_updates=forge)
