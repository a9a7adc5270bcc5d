"""Theorem 2 and Eq. 6 in float64, and the computable terms of Theorem 1's bound, for the rounds of a run.

Independent of `fedsim.aggregators.arfl`, and written like the paper, to check the recorded weights.
"""

from typing import NamedTuple

import numpy as np

from fedsim.paper.client_history import ClientHistory


class Optimum(NamedTuple):
    """Theorem 2's solution for the losses of one round."""

    alpha: np.ndarray
    """[N] the minimum of Eq. 6."""
    num_weighted: int
    """p, the number of clients with weight."""
    average_loss: float
    """The p-average loss."""
    threshold: float
    """The loss from which a client has no weight."""


class BoundTerms(NamedTuple):
    """Terms of the bound over T rounds; losses in nats."""

    rounds: np.ndarray
    """[T]"""
    risk: np.ndarray
    """[T] sum alpha_i L_i, the bound's first term."""
    norm: np.ndarray
    """[T] sqrt(sum alpha_i^2 / m_i), in its last term."""
    objective: np.ndarray
    """[T] Eq. 6."""
    num_weighted: np.ndarray
    """[T] p."""
    average_loss: np.ndarray
    """[T]"""
    threshold: np.ndarray
    """[T]"""
    difference: np.ndarray
    """[T] largest difference between the recorded weights and Theorem 2's."""
    agrees: np.ndarray
    """[T] bool: whether exactly the clients at or above the threshold have no weight."""


def compute_optimum(losses: np.ndarray, num_examples: np.ndarray, lam: float) -> Optimum:
    """Theorem 2 in float64 for `losses` and `num_examples` [N], with lambda = `lam` * M."""
    lambda_, order = lam * num_examples.sum(), np.argsort(losses, kind="stable")
    sorted_examples, sorted_losses = num_examples[order].astype(float), losses[order].astype(float)
    cumulated = np.cumsum(sorted_examples)
    averages = np.cumsum(sorted_examples * sorted_losses) / cumulated
    p = int(np.flatnonzero(1 + cumulated * (averages - sorted_losses) / lambda_ > 0)[-1])
    share, average = cumulated[p], averages[p]
    alpha = num_examples / share * np.maximum(1 + share * (average - losses) / lambda_, 0)
    return Optimum(alpha, p + 1, float(average), float(average + lambda_ / share))


def compute_objective(alpha: np.ndarray, losses: np.ndarray, num_examples: np.ndarray, lam: float) -> float:
    """Eq. 6 for [N] clients: sum alpha_i L_i + lambda / 2 sum alpha_i^2 / m_i, with lambda = `lam` * M."""
    return float(alpha @ losses + lam * num_examples.sum() / 2 * (alpha**2 / num_examples).sum())


def compute_terms(history: ClientHistory, lam: float) -> BoundTerms | None:
    """All terms over the rounds in which every client has reported a finite loss; None if there is no such round."""
    participating = history.num_examples > 0
    alpha, losses = history.alpha[:, participating], history.losses[:, participating]
    num_examples = history.num_examples[participating]
    kept = np.isfinite(losses).all(axis=1) & ~np.isnan(alpha).any(axis=1)
    if not kept.any():
        return None
    alpha, losses = alpha[kept], losses[kept]
    best = [compute_optimum(round_losses, num_examples, lam) for round_losses in losses]
    threshold = np.asarray([optimum.threshold for optimum in best])
    near = np.abs(losses - threshold[:, None]) <= 1e-5 * np.maximum(1.0, threshold)[:, None]
    has_no_weight, is_above = alpha == 0, losses >= threshold[:, None]
    return BoundTerms(
        rounds=history.rounds[kept],
        risk=(alpha * losses).sum(axis=1),
        norm=np.sqrt((alpha**2 / num_examples).sum(axis=1)),
        objective=np.asarray([compute_objective(*pair, num_examples, lam) for pair in zip(alpha, losses, strict=True)]),
        num_weighted=np.asarray([optimum.num_weighted for optimum in best]),
        average_loss=np.asarray([optimum.average_loss for optimum in best]),
        threshold=threshold,
        difference=np.abs(alpha - np.stack([optimum.alpha for optimum in best])).max(axis=1),
        agrees=((has_no_weight == is_above) | near).all(axis=1),
    )
