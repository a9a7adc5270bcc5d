"""Mimic: copies of one honest client, for heterogeneous clients.

Karimireddy, He, Jaggi: "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing", ICLR 2022,
https://arxiv.org/abs/2006.09365
"""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Int

from fedsim.attacks.honest import broadcast_update, honest_deviations, honest_mask, honest_mean, to_float32
from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.settings import Limit, OnlyIf, Traced
from fedsim.core.trees import inner_products, nonzero, squared_norm, weighted_sum
from fedsim.core.types import Array, PyTree, Updates


class MimicState(NamedTuple):
    """What the malicious clients have learned."""

    round: Int[Array, ""]
    """t: rounds of learning so far."""
    mean: PyTree
    """mu, of the honest updates so far."""
    direction: PyTree
    """z, the direction of their largest variance."""
    target_id: Int[Array, ""]
    """Id of the client that is copied."""


def mimic(
    *,
    target: Annotated[
        Literal["learned", "fixed"],
        "the honest client to copy: the extreme one along the direction of largest variance, or `client_id`",
    ] = "learned",
    warmup: Annotated[
        Array | int, Traced(ge=1), OnlyIf("target", "learned"), "rounds in which the direction is learned"
    ] = 50,
    client_id: Annotated[
        Array | int,
        Traced(ge=0),
        Limit("client_id < N", lambda n: n - 1, of="clients"),
        OnlyIf("target", "fixed"),
        "id of the client to copy",
    ] = 0,
) -> Attack:
    """All malicious clients copy the update of one honest client, which then counts too much: none is an outlier.

    "learned": in the first `warmup` rounds they learn the direction z of the largest variance of the honest updates by
    Oja's method: mu <- t/(1+t) mu + 1/(1+t) mean, z <- t/(1+t) z + 1/(1+t) Cz/|Cz| with
    C = sum_i (x_i - mu)(x_i - mu)^T, normalized. They copy argmax_i <x_i, z>, and keep the last such client as their
    target after these rounds. The first z is random, the same in all runs.
    "fixed": they copy the given client.

    The paper has no sampling of clients. If the target is not in the cohort, or is malicious, they copy the
    argmax_i <x_i, z> of this round ("learned"), or the honest client with the next higher id, or else the lowest
    ("fixed"). Without honest clients they send zeros and learn nothing.
    """

    def init(variables: PyTree, num_examples: Array) -> PyTree:
        return _init_state(variables) if target == "learned" else ()

    def forge_updates(state: PyTree, context: AttackContext, key: Array) -> tuple[PyTree, PyTree]:
        if target == "fixed":
            return _copy_row(_next_row(client_id, context), context), state
        honest, ids = honest_mask(context), context.report.client_ids
        learned = _learn(state, context)
        is_learning = state.round < warmup
        updates_state = is_learning & jnp.any(honest)
        state = jax.tree.map(lambda new, old: jnp.where(updates_state, new, old), learned, state)
        extreme = jnp.argmax(jnp.where(honest, inner_products(context.report.updates, state.direction), -jnp.inf))
        is_target = honest & (ids == state.target_id)
        row = jnp.where(~is_learning & jnp.any(is_target), jnp.argmax(is_target), extreme)
        target_id = jnp.where(updates_state, ids[extreme], state.target_id)
        return _copy_row(row, context), state._replace(target_id=target_id)

    return Attack(init, forge_updates=forge_updates)


def _init_state(variables: PyTree) -> MimicState:
    mean = jax.tree.map(lambda leaf: jnp.zeros(jnp.shape(leaf)), variables)
    keys = optax.tree_utils.tree_split_key_like(jax.random.key(0), mean)
    direction = jax.tree.map(lambda key, leaf: jax.random.normal(key, leaf.shape), keys, mean)
    return MimicState(jnp.int32(0), mean, direction, jnp.int32(0))


def _learn(state: MimicState, context: AttackContext) -> MimicState:
    """One step of Oja's method on the honest updates."""
    past = state.round / (1 + state.round)
    average = lambda old, new: past * old + (1 - past) * new
    mean = jax.tree.map(average, state.mean, honest_mean(context))
    deviations = honest_deviations(context, mean)
    product = _normalize(weighted_sum(inner_products(deviations, state.direction), deviations), state.direction)
    direction = _normalize(jax.tree.map(average, state.direction, product), state.direction)
    return MimicState(state.round + 1, mean, direction, state.target_id)


def _normalize(vector: PyTree, default: PyTree) -> PyTree:
    """`vector` scaled to length 1; `default` if it is zero."""
    length = jnp.sqrt(squared_norm(vector))
    scale = 1 / nonzero(length)
    return jax.tree.map(lambda a, b: jnp.where(length > 0, scale * a, b), vector, default)


def _next_row(client_id: Array | int, context: AttackContext) -> Int[Array, ""]:
    """The row of the honest client with this id, or the next higher one, or else the lowest."""
    ids = context.report.client_ids
    order = jnp.where(ids >= client_id, ids, ids + jnp.max(ids) + 1)
    return jnp.argmin(jnp.where(honest_mask(context), order, jnp.iinfo(jnp.int32).max))


def _copy_row(row: Int[Array, ""], context: AttackContext) -> Updates:
    """Updates that all equal that of `row`; zeros if its client is not honest."""
    is_row = (jnp.arange(context.malicious.size) == row) & honest_mask(context)
    return broadcast_update(weighted_sum(is_row.astype(jnp.float32), to_float32(context.report.updates)), context)
