"""From a chunk's arrays to the columns of a run folder's tables (`store.SCHEMAS`); NaN stands for null."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fedsim.config import Config
from fedsim.evaluate import accuracy_percentiles
from fedsim.types import Metrics, RoundRecord

Columns = dict[str, Any]


def round_rows(
    configs: Sequence[Config],
    runs: Sequence[int],
    round_: int,
    metrics: Metrics,
    records: RoundRecord | None,
    corrupted: np.ndarray,
) -> Columns:
    """One row a run [S], after `round_` rounds.

    `metrics` [S], or client by client [S, C]; `records` [S, rounds, K] are those since the evaluation before;
    `corrupted` [S, N].
    """
    num_runs = len(configs)
    weight = np.full(num_runs, np.nan)
    if records is not None:
        of_corrupted = np.take_along_axis(corrupted[:, None], np.asarray(records.client_ids), axis=2)
        given = records.weights.sum(axis=(1, 2), dtype=np.float64)
        lost = (records.weights * of_corrupted).sum(axis=(1, 2), dtype=np.float64)
        weight = np.divide(lost, given, out=weight, where=given > 0)
    percentiles = np.full((num_runs, 3), np.nan)
    if np.ndim(metrics.num_correct) == 2:
        percentiles = accuracy_percentiles(np.asarray(metrics.num_correct), np.asarray(metrics.num_examples))
        metrics = jax.tree.map(lambda field: np.sum(field, axis=1), metrics)
    test_loss = metrics.loss_sum / metrics.num_examples
    return {
        "run": runs,
        "aggregator": [c.server.aggregator for c in configs],
        "corruption": [c.corruption.kind for c in configs],
        "fraction": [share(c, corrupted.shape[1]) for c in configs],
        "lam": [c.arfl.lam if c.server.aggregator == "arfl" else None for c in configs],
        "seed": [c.seed for c in configs],
        "round": [round_] * num_runs,
        "test_accuracy": metrics.num_correct / metrics.num_examples,
        "test_loss": test_loss,
        "corrupted_weight": weight,
        "accuracy_p10": percentiles[:, 0],
        "accuracy_p50": percentiles[:, 1],
        "accuracy_p90": percentiles[:, 2],
        "diverged": ~np.isfinite(test_loss) | (np.isnan(weight) if records is not None else False),
    }


def share(config: Config, num_clients: int) -> float:
    """The share of the clients that is corrupted, as configured."""
    return len(config.corruption.clients) / num_clients or config.corruption.fraction


def client_rows(
    runs: Sequence[int],
    last_round: int,
    records: RoundRecord,
    metrics: Metrics,
    alpha: np.ndarray | None,
    counts: np.ndarray,
    corrupted: np.ndarray,
    last_only: bool,
) -> Columns:
    """One row a run [S], round and client of the cohort; in `last_round`, where there is `alpha` [S, N], all clients.

    `records` [S, rounds, K] end with `last_round`; `metrics` are those after it, [S] or client by client [S, C];
    `counts` and `corrupted` [S, N]. With `last_only` the rounds before it are left out.
    """
    if last_only:
        records = RoundRecord(*(field[:, -1:] for field in records))
    client_ids = np.asarray(records.client_ids)
    num_runs, num_rounds, _ = client_ids.shape
    index = np.arange(num_runs)[:, None, None]
    round_numbers = last_round - num_rounds + 1 + np.arange(num_rounds)[None, :, None]
    alphas = np.full(records.weights.shape, np.nan, np.float32)
    if alpha is not None:
        alphas[:, -1] = alpha[np.arange(num_runs)[:, None], client_ids[:, -1]]
    weights = np.where(records.valid, records.weights, np.nan)
    accuracy = np.full(corrupted.shape, np.nan, np.float32)
    if np.ndim(metrics.num_correct) == 2:  # clients from N on are not in training
        num_correct, num_examples = (
            np.asarray(field)[:, : corrupted.shape[1]] for field in (metrics.num_correct, metrics.num_examples)
        )
        np.divide(num_correct, num_examples, out=accuracy, where=num_examples > 0)
    parts: list[tuple[Any, ...]] = [(index, round_numbers, client_ids, records.losses, alphas, weights)]
    if alpha is not None:
        in_cohort = np.zeros(alpha.shape, bool)
        np.put_along_axis(in_cohort, client_ids[:, -1], True, axis=1)
        run, client = np.nonzero(~in_cohort)
        parts.append((run, last_round, client, np.nan, alpha[run, client], np.nan))

    flat = [[column.ravel() for column in np.broadcast_arrays(*part)] for part in parts]
    run, round_, client_id, loss, alpha_, weight = (np.concatenate(columns) for columns in zip(*flat, strict=True))
    return {
        "run": np.asarray(runs)[run],
        "round": round_,
        "client_id": client_id,
        "count": counts[run, client_id],
        "loss": loss,
        "alpha": alpha_,
        "weight": weight,
        "corrupted": corrupted[run, client_id],
        "test_accuracy": np.where(round_ == last_round, accuracy[run, client_id], np.nan),
    }
