"""How well a rule's weights tell corrupted from benign clients."""

from itertools import pairwise

import numpy as np
import polars as pl


def weight_auc(clients: pl.DataFrame) -> float | None:
    """How well the weights of one run tell corrupted from benign clients, over the second half of its rounds.

    The probability that a benign client's weight, relative to what FedAvg would give it in that round, is larger than a
    corrupted one's (area under the ROC curve; 1/2: not at all). None where either kind is missing.
    """
    if not len(clients):
        return None
    part = clients.filter(pl.col("weight").is_not_null(), pl.col("num_examples") > 0)
    rounds, num_examples, weight = (part[name].to_numpy() for name in ("round", "num_examples", "weight"))
    if len(rounds) == 0:
        return None
    _, in_round = np.unique(rounds, return_inverse=True)
    fedavg = num_examples / np.bincount(in_round, weights=num_examples)[in_round]
    given = np.bincount(in_round, weights=weight)[in_round]
    late = (rounds > rounds.max() / 2) & (given > 0)
    benign = ~part["corrupted"].to_numpy()[late]
    if benign.all() or not benign.any():
        return None
    return roc_auc(benign, np.round(weight / fedavg, 5)[late])


def roc_auc(positive: np.ndarray, scores: np.ndarray) -> float:
    """The area under the ROC curve: Mann and Whitney's U, from the mean ranks of equal scores, over all pairs.

    scikit-learn's function takes ten milliseconds for a few hundred numbers, which are many seconds for a large sweep.
    """
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    num_positive, num_negative = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative))


def by_run(clients: pl.DataFrame, num_runs: int) -> list[pl.DataFrame]:
    """The rows of each run, of a table that is sorted by run."""
    edges = np.searchsorted(clients["run"].to_numpy(), np.arange(num_runs + 1))
    return [clients.slice(first, last - first) for first, last in pairwise(edges)]
