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
    rows, counts = [], clients.counts[playing]
    for round_, alpha, losses in zip(
        clients.rounds, clients.alpha[:, playing], clients.losses[:, playing], strict=True
    ):
        if not np.isfinite(losses).all() or np.isnan(alpha).any():
            continue
        best = optimum(losses, counts, lam)
        near = np.abs(losses - best.threshold) <= 1e-5 * max(1.0, best.threshold)
        agrees = bool((((alpha == 0) == (losses >= best.threshold)) | near).all())
        norm = np.sqrt((alpha**2 / counts).sum())
        found = objective(alpha, losses, counts, lam)
        difference = np.abs(alpha - best.alpha).max()
        rows.append((round_, alpha @ losses, norm, found, *best[1:], difference, agrees))
    return Terms(*np.asarray(rows, float).T) if rows else None
