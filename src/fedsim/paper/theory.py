"""Theorem 2 and Eq. 6 in float64, and the computable terms of Theorem 1's bound, for the rounds of a run.

A second computation of what `fedsim.aggregators.arfl` does, written as the paper writes it, to check what was recorded.
"""

from typing import NamedTuple

import numpy as np

from fedsim.paper.clients import Clients


class Optimum(NamedTuple):
    """Theorem 2, for the losses of one round."""

    alpha: np.ndarray  # [N] the minimum of Eq. 6
    num_weighted: int  # p
    average_loss: float  # the p-average loss
    threshold: float  # the loss from which a client has no weight


class Terms(NamedTuple):
    """T rounds; losses in nats."""

    rounds: np.ndarray  # [T]
    risk: np.ndarray  # [T] sum alpha_i L_i, the bound's first term
    norm: np.ndarray  # [T] sqrt(sum alpha_i^2 / m_i), in its last term
    objective: np.ndarray  # [T] Eq. 6
    num_weighted: np.ndarray  # [T] p
    average_loss: np.ndarray  # [T]
    threshold: np.ndarray  # [T]
    difference: np.ndarray  # [T] largest between the weights and Theorem 2's
    agrees: np.ndarray  # [T] bool: weight zero and loss at the threshold or above fall together


def optimum(losses: np.ndarray, counts: np.ndarray, lam: float) -> Optimum:
    """Theorem 2 in float64 for `losses` and `counts` [N], with lambda = `lam` * M; as the paper writes it."""
    lambda_, order = lam * counts.sum(), np.argsort(losses, kind="stable")
    sorted_counts, sorted_losses = counts[order].astype(float), losses[order].astype(float)
    cumulated = np.cumsum(sorted_counts)
    averages = np.cumsum(sorted_counts * sorted_losses) / cumulated
    p = int(np.flatnonzero(1 + cumulated * (averages - sorted_losses) / lambda_ > 0)[-1])
    share, average = cumulated[p], averages[p]
    alpha = counts / share * np.maximum(1 + share * (average - losses) / lambda_, 0)
    return Optimum(alpha, p + 1, float(average), float(average + lambda_ / share))


def objective(alpha: np.ndarray, losses: np.ndarray, counts: np.ndarray, lam: float) -> float:
    """Eq. 6: sum alpha_i L_i + lambda / 2 sum alpha_i^2 / m_i, with lambda = `lam` * M."""
    return float(alpha @ losses + lam * counts.sum() / 2 * (alpha**2 / counts).sum())


def terms(clients: Clients, lam: float) -> Terms | None:
    """All terms over the rounds in which every client has reported a finite loss; None where there is none."""
    playing = clients.counts > 0
    alpha, losses, counts = clients.alpha[:, playing], clients.losses[:, playing], clients.counts[playing]
    kept = np.isfinite(losses).all(axis=1) & ~np.isnan(alpha).any(axis=1)
    if not kept.any():
        return None
    alpha, losses = alpha[kept], losses[kept]
    best = [optimum(of_round, counts, lam) for of_round in losses]
    threshold = np.asarray([one.threshold for one in best])
    near = np.abs(losses - threshold[:, None]) <= 1e-5 * np.maximum(1.0, threshold)[:, None]
    has_none, is_above = alpha == 0, losses >= threshold[:, None]
    return Terms(
        rounds=clients.rounds[kept],
        risk=(alpha * losses).sum(axis=1),
        norm=np.sqrt((alpha**2 / counts).sum(axis=1)),
        objective=np.asarray([objective(a, loss, counts, lam) for a, loss in zip(alpha, losses, strict=True)]),
        num_weighted=np.asarray([one.num_weighted for one in best]),
        average_loss=np.asarray([one.average_loss for one in best]),
        threshold=threshold,
        difference=np.abs(alpha - np.stack([one.alpha for one in best])).max(axis=1),
        agrees=((has_none == is_above) | near).all(axis=1),
    )
