"""ARFL's closed form (Theorem 2): weights from losses and lambda, and the lambda that reaches a target.

Li, Ngai, Ye, Voigt: "Auto-weighted Robust Federated Learning with Corrupted Data Sources", ACM TIST 2022,
https://arxiv.org/abs/2101.05880

With shares q_i = m_i / M, losses in ascending order and Q_k = q_1 + ... + q_k, client k has a positive weight if
gap_k = sum_{i<=k} q_i (L_k - L_i) < lam, for lambda = lam * M: the theorem's condition, divided by M. The gap grows by
Q_{k-1} (L_k - L_{k-1}), so it is a sum of non-negative terms, and nothing cancels, however small lam is.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fedsim.core.settings import Scalar
from fedsim.core.types import Array

MAX_LAM = 1e30
"""The largest `lam` that a setting may have; gives FedAvg."""
MIN_LAM = 1e-30


class ArflWeights(NamedTuple):
    """The minimizer of Eq. 6 for fixed parameters."""

    alpha: Array
    """[N] weights that sum to 1; all 0 if no client participates."""
    num_selected: Array
    """[] int32, p: clients with a positive weight."""
    average_loss: Array
    """[] the p-average loss."""
    threshold: Array
    """[] loss from which a client's weight is zero; inf if float32 cannot hold it."""


class SortedClients(NamedTuple):
    """The participating clients (finite loss, at least one example) in ascending order of loss, then zeros."""

    participating: Array
    """[N] bool, in the original order."""
    shares: Array
    """[N] q, in the original order."""
    num_participating: Array
    """[]."""
    losses: Array
    """[N] in ascending order."""
    cumulative_shares: Array
    """[N] Q_k."""
    gaps: Array
    """[N] gap_k."""


def sort_clients(losses: Array, num_examples: Array) -> SortedClients:
    """Sorts clients by `losses` L [N]; `num_examples` m [N]."""
    participating = jnp.isfinite(losses) & (num_examples > 0)
    order = jnp.argsort(jnp.where(participating, losses, jnp.inf))
    num_participating = jnp.sum(participating)
    shares = num_examples / jnp.maximum(_total(num_examples), 1)
    sorted_losses = jnp.where(jnp.arange(losses.size) < num_participating, losses[order], 0.0)
    cumulative_shares = jnp.cumsum(jnp.where(participating, shares, 0.0)[order])
    steps = jnp.diff(sorted_losses, prepend=sorted_losses[:1])
    gaps = jnp.cumsum(jnp.roll(cumulative_shares, 1) * steps)
    return SortedClients(participating, shares, num_participating, sorted_losses, cumulative_shares, gaps)


def arfl_weights(losses: Array, num_examples: Array, lam: Scalar) -> ArflWeights:
    """The minimizer alpha [N] of the paper's Eq. 6 for fixed parameters (Theorem 2).

    Minimizes sum_i alpha_i L_i + (lambda / 2) sum_i alpha_i^2 / m_i over the simplex, for `losses` L [N],
    `num_examples` m [N] and lambda = `lam` * M. Clients without examples or a finite loss get 0. alpha is finite for
    `lam` from 1e-30 to 1e30 and any losses >= 0.

    >>> import jax.numpy as jnp
    >>> weights = arfl_weights(jnp.array([0.5, 1.0, 9.0]), jnp.array([10, 10, 20]), lam=0.5)
    >>> [round(alpha, 3) for alpha in weights.alpha.tolist()], int(weights.num_selected)
    ([0.625, 0.375, 0.0], 2)
    """
    clients = sort_clients(losses, num_examples)
    p = jnp.sum((jnp.arange(losses.size) < clients.num_participating) & (clients.gaps < lam))

    last = jnp.maximum(p - 1, 0)
    share_p = jnp.where(p > 0, clients.cumulative_shares[last], 1.0)
    largest, gap = clients.losses[last], clients.gaps[last]
    # Scaling by powers of two changes no bit and keeps what follows inside float32. The divisor has to be `lam` itself:
    # XLA multiplies by the inverse of a computed one.
    unit, inverse_unit = jnp.where(lam > 1, 2.0**-50, 2.0**50), jnp.where(lam > 1, 2.0**50, 2.0**-50)
    margin = (lam - gap) * unit / share_p  # between the threshold and the largest loss with a positive weight
    excess = jnp.where(clients.participating, margin + (largest - losses) * unit, 0.0)
    alpha = jnp.where(p > 0, clients.shares * jnp.maximum(excess, 0.0) / lam * inverse_unit, 0.0)
    return ArflWeights(alpha, p.astype(jnp.int32), largest - gap / share_p, largest + margin * inverse_unit)


def lam_for_clients(losses: Array, num_examples: Array, target: Scalar) -> Array:
    """The largest lam [] for which `target` clients, rounded down, have a positive weight: the gap of the next client.

    Client p + 1 has no weight while lam <= gap_{p+1}. Clients whose losses tie have a weight together or not at all: if
    the target falls among them, only those with a lower loss have one. A target of all clients gives 1e30, which is
    FedAvg. `losses` [N], `num_examples` [N].
    """
    clients = sort_clients(losses, num_examples)
    p = jnp.clip(jnp.floor(jnp.asarray(target, jnp.float32)).astype(jnp.int32), 1, losses.size)
    gap = clients.gaps[jnp.minimum(p, losses.size - 1)]
    return jnp.where(p < clients.num_participating, jnp.clip(gap, MIN_LAM, MAX_LAM), MAX_LAM)


def lam_for_effective(losses: Array, num_examples: Array, target: Scalar) -> Array:
    """The lam [] for which the effective number of clients is `target`: n / (M_n sum_i alpha_i^2 / m_i).

    n and M_n count the participating clients and their examples. With clients of equal size, this is 1 / sum_i
    alpha_i^2; this form grows with lam for other sizes, too, from the share of the best client alone to n, which is
    FedAvg (1e30). For p clients with a positive weight, M sum_i alpha_i^2 / m_i = 1 / Q_p + V_p / lam^2, where V_p is
    the sum of q_i times the squared distance of L_i from the p-average; p is the first whose value at lam = gap_{p+1}
    is at most the target's. `losses` [N], `num_examples` [N].
    """
    clients = sort_clients(losses, num_examples)
    slots, last = jnp.arange(losses.size), jnp.maximum(clients.num_participating - 1, 0)
    cumulative, gaps = clients.cumulative_shares, clients.gaps
    previous = jnp.roll(cumulative, 1).at[0].set(0.0)
    shares = cumulative - previous
    nonzero = lambda a: jnp.where(a > 0, a, 1.0)
    increments = jnp.where((slots > 0) & (slots < clients.num_participating), shares * jnp.square(gaps), 0.0)
    variance = jnp.cumsum(increments / (nonzero(cumulative) * nonzero(previous)))  # V_k, by Welford's algorithm
    target_value = clients.num_participating / (jnp.maximum(target, MIN_LAM) * nonzero(cumulative[last]))
    next_gap = jnp.where(slots < last, jnp.roll(gaps, -1), jnp.inf)
    value_at_next = 1 / nonzero(cumulative) + variance / jnp.square(nonzero(next_gap))
    p = jnp.sum((slots < last) & ((value_at_next > target_value) | (next_gap == 0)))  # its slot: the value decreases
    difference = target_value - 1 / nonzero(cumulative[p])
    lam = jnp.sqrt(variance[p] / nonzero(difference))
    lam = jnp.where(difference > 0, lam, MAX_LAM)
    return jnp.clip(jnp.minimum(lam, next_gap[p]), MIN_LAM, MAX_LAM)


def _total(num_examples: Array) -> Array:
    """The sum of `num_examples` [N] as float32, rounded once if int32 holds it; forged numbers may exceed that.

    An int32 sum that has wrapped around is negative, or at most half of the correct sum.
    """
    exact, rounded = jnp.sum(num_examples), jnp.sum(num_examples.astype(jnp.float32))
    return jnp.where(exact > 0.75 * rounded, exact.astype(jnp.float32), rounded)
