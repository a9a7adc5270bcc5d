"""Bucketing, as a pre-aggregator.

Karimireddy, He, Jaggi: "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing", ICLR 2022,
https://arxiv.org/abs/2006.09365
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.aggregators.weighting import mix_updates
from fedsim.core.contracts import PreAggregator
from fedsim.core.settings import Bounds, Limit
from fedsim.core.types import Array, CohortReport

LIMIT = Limit("s <= K", lambda k: k)


def bucketing(*, size: Annotated[int, Bounds(ge=1), LIMIT, "s, clients per bucket"] = 2) -> PreAggregator:
    """Divides the valid clients into random buckets of `size`; each bucket becomes one row, the mean of its members.

    A cohort of K gives ceil(K / s) rows; rows without a valid client are invalid. The last bucket may be
    incomplete: it is the mean of its members like the others, as in the authors' code, so the expectation of a row
    over the order is the mean of all clients. A row has the sum of its members' examples and weights, their mean
    loss, and the id of one of them. The f of the rule does not change: a corrupted client affects one bucket.
    Raises `ValueError` if `size` exceeds K.
    """

    def pre_aggregate(report: CohortReport, key: Array) -> CohortReport:
        num_clients = report.valid.size
        LIMIT.check("size", size, num_clients)
        starts = jnp.arange(0, num_clients, size)
        draw = jax.vmap(lambda client_id: jax.random.uniform(jax.random.fold_in(key, client_id)))
        order = jnp.argsort(jnp.where(report.valid, draw(report.client_ids), jnp.inf))
        buckets = jnp.argsort(order) // size  # [K] of each client
        members = (buckets[None, :] == jnp.arange(starts.size)[:, None]) & report.valid[None, :]
        num_members = jnp.sum(members, axis=1)
        mixing = members / jnp.maximum(num_members, 1).astype(jnp.float32)[:, None]
        losses = jnp.sum(jnp.where(members, mixing * report.losses[None], 0.0), axis=1)
        total = lambda values: jnp.sum(jnp.where(members, values[None], 0), axis=1).astype(values.dtype)
        return mix_updates(report, mixing)._replace(
            client_ids=report.client_ids[order[starts]],
            num_examples=total(report.num_examples),
            weights=None if report.weights is None else total(report.weights),
            losses=jnp.where(num_members > 0, losses, jnp.inf),
            valid=num_members > 0,
        )

    return pre_aggregate
