"""The lambda with which ARFL's weights reach a target (`fedsim.aggregators.arfl_weights`)."""

import jax.numpy as jnp

from fedsim.aggregators.arfl_weights import MAX_LAM, MAX_SORTED, MIN_LAM, make_clients, sort_clients
from fedsim.core.sorting import ASCENDING
from fedsim.core.trees import nonzero
from fedsim.core.types import Array, Scalar


def lam_for_clients(losses: Array, num_examples: Array, target: Scalar) -> Array:
    """The largest lam [] for which `target` clients, rounded down, have a positive weight: the gap of the next client.

    Client p + 1 has no weight while lam <= gap_{p+1}. Clients whose losses tie have a weight together or not at all: if
    the target falls among them, only those with a lower loss have one. A target of all clients gives 1e30, which is
    FedAvg. `losses` [N], `num_examples` [N].
    """
    p = jnp.clip(jnp.floor(jnp.asarray(target, jnp.float32)).astype(jnp.int32), 1, losses.size)
    clients = make_clients(losses, num_examples)
    if losses.size <= MAX_SORTED:
        ordered = sort_clients(clients)
        num_participating, gap = ordered.num_participating, ordered.gaps[jnp.minimum(p, losses.size - 1)]
    else:  # integers are sorted several times as fast as floats
        keys = ASCENDING.to_keys(jnp.where(clients.participating, losses, jnp.inf))
        next_loss = ASCENDING.to_values(jnp.sort(keys)[jnp.minimum(p, losses.size - 1)])
        num_participating, gap = jnp.sum(clients.participating), clients.gap(next_loss)
    return jnp.where(p < num_participating, jnp.clip(gap, MIN_LAM, MAX_LAM), MAX_LAM)


def lam_for_effective(losses: Array, num_examples: Array, target: Scalar) -> Array:
    """The lam [] for which the effective number of clients is `target`: n / (M_n sum_i alpha_i^2 / m_i).

    n and M_n count the participating clients and their examples. With clients of equal size, this is 1 / sum_i
    alpha_i^2; this form grows with lam for other sizes, too, from the share of the best client alone to n, which is
    FedAvg (1e30). For p clients with a positive weight, M sum_i alpha_i^2 / m_i = 1 / Q_p + V_p / lam^2, where V_p is
    the sum of q_i times the squared distance of L_i from the p-average; p is the first whose value at lam = gap_{p+1}
    is at most the target's. `losses` [N], `num_examples` [N], sorted whatever N is.
    """
    clients = sort_clients(make_clients(losses, num_examples))
    positions, last = jnp.arange(losses.size), jnp.maximum(clients.num_participating - 1, 0)
    cumulative, gaps = clients.cumulative_shares, clients.gaps
    previous = jnp.roll(cumulative, 1).at[0].set(0.0)
    shares = cumulative - previous
    increments = jnp.where((positions > 0) & (positions < clients.num_participating), shares * jnp.square(gaps), 0.0)
    variance = jnp.cumsum(increments / (nonzero(cumulative) * nonzero(previous)))  # V_k, by Welford's algorithm
    target_value = clients.num_participating / (jnp.maximum(target, MIN_LAM) * nonzero(cumulative[last]))
    next_gap = jnp.where(positions < last, jnp.roll(gaps, -1), jnp.inf)
    value_at_next = 1 / nonzero(cumulative) + variance / jnp.square(nonzero(next_gap))
    p = jnp.sum((positions < last) & ((value_at_next > target_value) | (next_gap == 0)))  # the value decreases
    difference = target_value - 1 / nonzero(cumulative[p])
    lam = jnp.sqrt(variance[p] / nonzero(difference))
    lam = jnp.where(difference > 0, lam, MAX_LAM)
    return jnp.clip(jnp.minimum(lam, next_gap[p]), MIN_LAM, MAX_LAM)
