"""Gaussian noise instead of an update.

Blanchard, El Mhamdi, Guerraoui, Stainer: "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
NeurIPS 2017, https://arxiv.org/abs/1703.02757
"""

from collections.abc import Callable
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Int

from fedsim.attacks.honest import cast_like_report, honest_mean, to_float32
from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.settings import Traced
from fedsim.core.types import Array, PyTree, Scalar, Updates


def gaussian(
    *,
    std: Annotated[Scalar, Traced(ge=0, le=1e15), "standard deviation of each coordinate"] = 200.0,
    center: Annotated[
        Literal["zero", "mean", "update"],
        "mean of the noise: zero (the paper's), the honest mean, or the client's own update",
    ] = "zero",
) -> Attack:
    """Malicious clients send independent noise: N(0, std^2) in each coordinate, around `center`.

    Without honest clients, the noise around "mean" is around zero.
    """

    def forge_updates(state: PyTree, context: AttackContext, key: Array) -> tuple[PyTree, PyTree]:
        updates = to_float32(context.report.updates)
        centers = updates if center == "update" else jax.tree.map(jnp.zeros_like, updates)
        if center == "mean":
            centers = jax.tree.map(lambda m, u: jnp.broadcast_to(m[None], u.shape), honest_mean(context), updates)
        noise = draw_noise(key, context.report.client_ids, updates)
        return cast_like_report(jax.tree.map(lambda c, n: c + std * n, centers, noise), context), state

    return Attack(forge_updates=forge_updates)


def draw_noise(
    key: Array, client_ids: Int[Array, " K"], updates: Updates, draw: Callable[..., Array] = jax.random.normal
) -> Updates:
    """Random numbers shaped like `updates`; a client's depend on its id, not on its row in the cohort."""
    leaves, structure = jax.tree.flatten(updates)
    client_keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(client_ids)

    def leaf(number: int, u: Array) -> Array:
        return jax.vmap(lambda client_key: draw(jax.random.fold_in(client_key, number), u.shape[1:]))(client_keys)

    return jax.tree.unflatten(structure, [leaf(number, u) for number, u in enumerate(leaves)])
