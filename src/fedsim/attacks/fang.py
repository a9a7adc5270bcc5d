"""Attacks tailored to Krum, and to trimmed mean and median.

Fang, Cao, Jia, Gong: "Local Model Poisoning Attacks to Byzantine-Robust Federated Learning", USENIX Security 2020,
https://arxiv.org/abs/1911.11815
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Float

from fedsim.attacks.gaussian import draw_noise
from fedsim.attacks.honest import (
    broadcast_update,
    cast_like_report,
    honest_deviations,
    honest_mask,
    honest_mean,
    malicious_mask,
    to_float32,
)
from fedsim.attacks.search import aggregate_with
from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.settings import Bounds, OnlyIf, Traced
from fedsim.core.trees import expand_like, gram_matrix, squared_distances, squared_norms, sum_of_nearest
from fedsim.core.types import Array, PyTree, Scalar


def fang(
    *,
    against: Annotated[
        Literal["krum", "trimmed_mean"], "the rule that is attacked; trimmed_mean also stands for the median"
    ] = "trimmed_mean",
    range_factor: Annotated[
        Scalar,
        Traced(gt=1, le=1e30),
        OnlyIf("against", "trimmed_mean"),
        "b > 1, values reach up to b times the extreme honest one",
    ] = 2.0,
    num_halvings: Annotated[
        int, Bounds(ge=1, le=100), OnlyIf("against", "krum"), "number of lambdas tried, each half of the last"
    ] = 20,
) -> Attack:
    """Deviates against s = sign(mean), the direction of the honest update of each parameter, with full knowledge.

    "krum": all malicious clients send -lambda s. lambda starts at the paper's bound and is halved until the server's
    rule, whichever it is, gives a malicious client weight; if none does, the last one is sent. The paper's malicious
    updates keep a small distance from each other; here they are equal.
    "trimmed_mean": with w the broadcast parameters plus an update, each malicious client draws each parameter beyond
    the honest ones: from [w_max, b w_max], or [w_max, w_max / b] if w_max < 0, if s = -1; from [w_min / b, w_min],
    or [b w_min, w_min] if w_min < 0, if s = 1.
    Without honest clients they send zeros.
    """

    def forge_updates(state: PyTree, context: AttackContext, key: Array) -> tuple[PyTree, PyTree]:
        if against == "krum":
            return _attack_krum(context, num_halvings), state
        return _attack_trimmed_mean(context, key, range_factor), state

    return Attack(forge_updates=forge_updates)


def _attack_krum(context: AttackContext, num_halvings: int) -> PyTree:
    signs = jax.tree.map(jnp.sign, honest_mean(context))
    largest, malicious = max_lambda(context), malicious_mask(context)

    def forge(halvings: Array) -> PyTree:
        return jax.tree.map(lambda s: -largest * 0.5**halvings * s, signs)

    def is_rejected(halvings: Array) -> Array:
        return ~jnp.any(malicious & (aggregate_with(forge(halvings), context).weights > 0))

    again = lambda halvings: (halvings < num_halvings - 1) & is_rejected(halvings)
    return broadcast_update(forge(jax.lax.while_loop(again, lambda halvings: halvings + 1, jnp.int32(0))), context)


def max_lambda(context: AttackContext) -> Float[Array, ""]:
    """The paper's bound on lambda: beyond it Krum selects no malicious client.

    The minimum over i of the sum of the distances of x_i to its n - m - 2 nearest honest neighbors, over
    (n - 2 m - 1) sqrt(d), plus max_i |x_i| / sqrt(d), for d parameters; n - 2 m - 1 is at least 1.
    """
    honest = honest_mask(context)
    num_valid, num_honest = jnp.sum(context.report.valid), jnp.sum(honest)
    distances = jnp.sqrt(squared_distances(gram_matrix(honest_deviations(context))))
    sums = sum_of_nearest(distances, honest, num_honest - 2)
    smallest = jnp.where(jnp.any(honest), jnp.min(jnp.where(honest, sums, jnp.inf)), 0.0)
    max_norm = jnp.sqrt(jnp.max(jnp.where(honest, squared_norms(context.report.updates), 0.0)))
    num_params = sum(u[0].size for u in jax.tree.leaves(context.report.updates))
    margin = jnp.maximum(2 * num_honest - num_valid - 1, 1)  # n - 2 m - 1
    return (smallest / margin + max_norm) / jnp.sqrt(float(num_params))


def _attack_trimmed_mean(context: AttackContext, key: Array, range_factor: Scalar) -> PyTree:
    honest = honest_mask(context)
    updates = to_float32(context.report.updates)
    uniform = draw_noise(key, context.report.client_ids, updates, jax.random.uniform)

    def leaf(start: Array, u: Array, mean: Array, fraction: Array) -> Array:
        is_honest = expand_like(honest, u)
        largest = start + jnp.max(jnp.where(is_honest, u, -jnp.inf), axis=0)
        smallest = start + jnp.min(jnp.where(is_honest, u, jnp.inf), axis=0)
        above = jnp.where(largest > 0, range_factor * largest, largest / range_factor)
        below = jnp.where(smallest > 0, smallest / range_factor, range_factor * smallest)
        increases = mean >= 0
        edge, end = jnp.where(increases, smallest, largest), jnp.where(increases, below, above)
        forged = edge[None] + fraction * (end - edge)[None] - start[None]
        return jnp.where(jnp.any(honest), forged, 0.0)

    start = to_float32(context.variables)
    return cast_like_report(jax.tree.map(leaf, start, updates, honest_mean(context), uniform), context)
