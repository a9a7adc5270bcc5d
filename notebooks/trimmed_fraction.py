"""The rule of the notebook `custom_aggregator`: the coordinate-wise trimmed mean of a fraction of the clients.

Yin, Chen, Ramchandran, Bartlett: "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018,
https://arxiv.org/abs/1803.01498
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim import Aggregate, Aggregator, Scalar, Traced


def trimmed_fraction(
    *, trim: Annotated[Scalar, Traced(ge=0, lt=0.5), "fraction of the clients to trim at each end"] = 0.2
) -> Aggregator:
    """The mean of each parameter over the valid clients, without the largest and the smallest values."""

    def aggregate(state, report, key):
        num_valid = jnp.sum(report.valid)
        num_cut = jnp.floor(trim * num_valid)  # at each end
        num_kept = jnp.maximum(num_valid - 2 * num_cut, 1)

        def is_kept(update):  # [K, ...]
            valid = report.valid.reshape(-1, *[1] * (update.ndim - 1))
            ranks = jnp.argsort(jnp.argsort(jnp.where(valid, update, jnp.inf), axis=0), axis=0)
            return valid & (ranks >= num_cut) & (ranks < num_valid - num_cut)

        kept = jax.tree.map(is_kept, report.updates)
        mean = lambda update, kept: jnp.sum(jnp.where(kept, update, 0), axis=0) / num_kept
        update = jax.tree.map(mean, report.updates, kept)
        per_parameter = jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(kept)], axis=1)
        return Aggregate(update, jnp.mean(per_parameter, axis=1) / num_kept), state

    return Aggregator(lambda variables, num_examples, losses: (), aggregate, lambda state: None)
