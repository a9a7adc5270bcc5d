"""ARFL's closed form (Theorem 2): weights from losses and lambda, and the lambda with which they reach a target.

Li, Ngai, Ye, Voigt: "Auto-weighted Robust Federated Learning with Corrupted Data Sources", ACM TIST 2022,
https://arxiv.org/abs/2101.05880

With shares q_i = m_i / M, losses in ascending order and Q_k = q_1 + ... + q_k, client k has a positive weight if
gap_k = sum_{i<=k} q_i (L_k - L_i) < lam, for lambda = lam * M: the theorem's condition, divided by M. The gap grows by
Q_{k-1} (L_k - L_{k-1}), so it is a sum of non-negative terms, and nothing cancels, however small lam is.

More than `MAX_SORTED` clients are not sorted: clients that would get a negative weight are left out until there are
none (Michelot, "A finite algorithm for finding the projection of a point onto the canonical simplex of R^n", JOTA 50,
1986, https://doi.org/10.1007/BF00938486).
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fedsim.core.settings import POSITIVE
from fedsim.core.sorting import ASCENDING
from fedsim.core.trees import nonzero
from fedsim.core.types import Array, Scalar

MIN_LAM, MAX_LAM = POSITIVE["ge"], POSITIVE["le"]
"""The bounds of `lam` as a setting; the largest gives FedAvg."""
MAX_SORTED = 4096
"""The largest number of clients that are sorted: for more, sorting takes longer than the rest of a round."""


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


class Clients(NamedTuple):
    """The clients as the closed form uses them."""

    losses: Array
    """[N] L."""
    participating: Array
    """[N] bool: a finite loss and at least one example."""
    shares: Array
    """[N] q."""

    def gap(self, x: Array) -> Array:
        """gap(x) [] over the participating clients."""
        return jnp.sum(jnp.where(self.participating, self.shares * jnp.maximum(x - self.losses, 0.0), 0.0))


Selection: TypeAlias = tuple[Array, Array, Array, Array]
"""Of the p clients with a positive weight: p []; Q_p [], 1 if p is 0; a reference [], a loss that none of them exceeds,
at most the threshold; and the sum [] of their q_i (reference - L_i)."""


def _make_clients(losses: Array, num_examples: Array) -> Clients:
    """Clients with `losses` L [N] and `num_examples` m [N]."""
    shares = num_examples / jnp.maximum(_total(num_examples), 1)
    return Clients(losses, jnp.isfinite(losses) & (num_examples > 0), shares)


def _sort_clients(clients: Clients) -> tuple[Array, Array, Array]:
    """The losses [N] of the participating clients in ascending order, then zeros; their Q_k [N] and gap_k [N]."""
    losses, participating, shares = clients
    order = jnp.argsort(jnp.where(participating, losses, jnp.inf))
    sorted_losses = jnp.where(participating[order], losses[order], 0.0)
    cumulative_shares = jnp.cumsum(jnp.where(participating, shares, 0.0)[order])
    steps = jnp.diff(sorted_losses, prepend=sorted_losses[:1])
    gaps = jnp.cumsum(jnp.roll(cumulative_shares, 1) * steps)
    return sorted_losses, cumulative_shares, gaps


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
    clients = _make_clients(losses, num_examples)
    select = _select_by_sorting if losses.size <= MAX_SORTED else _select_by_elimination
    p, share_p, reference, gap = select(clients, lam)
    # Scaling by powers of two changes no bit and keeps what follows inside float32. The divisor has to be `lam` itself:
    # XLA multiplies by the inverse of a computed one.
    unit, inverse_unit = jnp.where(lam > 1, 2.0**-50, 2.0**50), jnp.where(lam > 1, 2.0**50, 2.0**-50)
    margin = (lam - gap) * unit / share_p  # between the threshold and the reference
    is_selected = clients.participating & (losses <= reference) & (p > 0)  # beyond them, rounding may leave an excess
    excess = jnp.where(is_selected, jnp.maximum(margin + (reference - losses) * unit, 0.0), 0.0)
    alpha = clients.shares * excess / lam * inverse_unit
    return ArflWeights(alpha, p.astype(jnp.int32), reference - gap / share_p, reference + margin * inverse_unit)


def _select_by_sorting(clients: Clients, lam: Scalar) -> Selection:
    losses, cumulative_shares, gaps = _sort_clients(clients)
    p = jnp.sum((jnp.arange(losses.size) < jnp.sum(clients.participating)) & (gaps < lam))
    last = jnp.maximum(p - 1, 0)
    share_p = jnp.where(p > 0, cumulative_shares[last], 1.0)
    return p, share_p, losses[last], gaps[last]


def _select_by_elimination(clients: Clients, lam: Scalar) -> Selection:
    """The same up to rounding. Distances to the lowest loss are compared, so nothing cancels, however small lam is."""
    losses, participating, shares = clients
    distances = jnp.where(participating, losses - jnp.min(jnp.where(participating, losses, jnp.inf)), jnp.inf)
    sum_of = lambda remaining, values: jnp.sum(jnp.where(remaining, shares * values, 0.0))

    def eliminate(bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        remaining = distances < bounds[1]
        return bounds[1], (lam + sum_of(remaining, distances)) / sum_of(remaining, 1.0)

    start = jnp.float32(jnp.inf), eliminate((jnp.float32(0.0), jnp.float32(jnp.inf)))[1]
    bound = jnp.minimum(*jax.lax.while_loop(lambda bounds: bounds[1] < bounds[0], eliminate, start))
    reference = jnp.max(jnp.where(distances < bound, losses, -jnp.inf))
    # The bound may be rounded to the other side of a loss, even of several equal ones.
    previous = lambda x: jnp.max(jnp.where(participating & (losses < x), losses, -jnp.inf))
    following = lambda x: jnp.min(jnp.where(participating & (losses > x), losses, jnp.inf))
    is_next_selected = lambda x: jnp.isfinite(following(x)) & (clients.gap(following(x)) < lam)
    is_beyond = lambda x: jnp.isfinite(x) & (clients.gap(x) >= lam)
    reference = jax.lax.while_loop(is_beyond, previous, reference)
    reference = jax.lax.while_loop(is_next_selected, following, reference)
    is_selected = participating & (losses <= reference)
    p, share_p = jnp.sum(is_selected), sum_of(is_selected, 1.0)
    return p, jnp.where(p > 0, share_p, 1.0), jnp.where(p > 0, reference, 0.0), clients.gap(reference)


def lam_for_clients(losses: Array, num_examples: Array, target: Scalar) -> Array:
    """The largest lam [] for which `target` clients, rounded down, have a positive weight: the gap of the next client.

    Client p + 1 has no weight while lam <= gap_{p+1}. Clients whose losses tie have a weight together or not at all: if
    the target falls among them, only those with a lower loss have one. A target of all clients gives 1e30, which is
    FedAvg. `losses` [N], `num_examples` [N].
    """
    p = jnp.clip(jnp.floor(jnp.asarray(target, jnp.float32)).astype(jnp.int32), 1, losses.size)
    clients = _make_clients(losses, num_examples)
    if losses.size <= MAX_SORTED:
        _, _, gaps = _sort_clients(clients)
        gap = gaps[jnp.minimum(p, losses.size - 1)]
    else:  # integers are sorted several times as fast as floats
        keys = ASCENDING.to_keys(jnp.where(clients.participating, losses, jnp.inf))
        next_loss = ASCENDING.to_values(jnp.sort(keys)[jnp.minimum(p, losses.size - 1)])
        gap = clients.gap(next_loss)
    return jnp.where(p < jnp.sum(clients.participating), jnp.clip(gap, MIN_LAM, MAX_LAM), MAX_LAM)


def lam_for_effective(losses: Array, num_examples: Array, target: Scalar) -> Array:
    """The lam [] for which the effective number of clients is `target`: n / (M_n sum_i alpha_i^2 / m_i).

    n and M_n count the participating clients and their examples. With clients of equal size, this is 1 / sum_i
    alpha_i^2; this form grows with lam for other sizes, too, from the share of the best client alone to n, which is
    FedAvg (1e30). For p clients with a positive weight, M sum_i alpha_i^2 / m_i = 1 / Q_p + V_p / lam^2, where V_p is
    the sum of q_i times the squared distance of L_i from the p-average; p is the first whose value at lam = gap_{p+1}
    is at most the target's. `losses` [N], `num_examples` [N], sorted whatever N is.
    """
    clients = _make_clients(losses, num_examples)
    num_participating = jnp.sum(clients.participating)
    _, cumulative, gaps = _sort_clients(clients)
    positions, last = jnp.arange(losses.size), jnp.maximum(num_participating - 1, 0)
    previous = jnp.roll(cumulative, 1).at[0].set(0.0)
    shares = cumulative - previous
    increments = jnp.where((positions > 0) & (positions < num_participating), shares * jnp.square(gaps), 0.0)
    variance = jnp.cumsum(increments / (nonzero(cumulative) * nonzero(previous)))  # V_k, by Welford's algorithm
    target_value = num_participating / (jnp.maximum(target, MIN_LAM) * nonzero(cumulative[last]))
    next_gap = jnp.where(positions < last, jnp.roll(gaps, -1), jnp.inf)
    value_at_next = 1 / nonzero(cumulative) + variance / jnp.square(nonzero(next_gap))
    p = jnp.sum((positions < last) & ((value_at_next > target_value) | (next_gap == 0)))  # the value decreases
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
