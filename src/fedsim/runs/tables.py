"""Rows of a run folder's tables from the arrays of a chunk of rounds. NaN stands for null."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fedsim.config.byzantine_count import assumed_f
from fedsim.config.schema import Config
from fedsim.core.evaluate import accuracy_percentiles
from fedsim.core.types import Metrics, RoundRecord
from fedsim.runs.schemas import Columns


def round_rows(
    configs: Sequence[Config],
    runs: Sequence[int],
    round_: int,
    metrics: Metrics,
    records: RoundRecord | None,
    corrupted: np.ndarray,
    success: Metrics | None = None,
    validation: Metrics | None = None,
) -> Columns:
    """One row a run [S], after `round_` rounds.

    `metrics` [S], or client by client [S, C]; `records` [S, rounds, K] are those since the evaluation before;
    `corrupted` [S, N]; `success` [S] are the metrics on triggered test examples, without examples for a run without a
    backdoor; `validation` [S] those on the validation data.
    """
    num_runs = len(configs)
    weight, excess = np.full((2, num_runs), np.nan)
    if records is not None:
        is_corrupted = np.take_along_axis(corrupted[:, None], np.asarray(records.client_ids), axis=2)
        total = records.weights.sum(axis=(1, 2), dtype=np.float64)
        corrupted_total = (records.weights * is_corrupted).sum(axis=(1, 2), dtype=np.float64)
        weight = np.divide(corrupted_total, total, out=weight, where=total > 0)
        excess = _byzantine_excess(configs, np.asarray(records.valid), is_corrupted)
    percentiles = np.full((num_runs, 3), np.nan)
    if np.ndim(metrics.num_correct) == 2:
        percentiles = accuracy_percentiles(np.asarray(metrics.num_correct), np.asarray(metrics.num_examples))
        metrics = jax.tree.map(lambda field: np.sum(field, axis=1), metrics)
    test_loss = metrics.loss_sum / metrics.num_examples
    missing = np.full(num_runs, np.nan)
    return {
        "run": runs,
        "aggregator": [c.server.aggregator for c in configs],
        "corruption": [c.corruption.kind for c in configs],
        "fraction": [corrupted_share(c, corrupted.shape[1]) for c in configs],
        "lam": [lam(c) for c in configs],
        "seed": [c.seed for c in configs],
        "round": [round_] * num_runs,
        "test_accuracy": metrics.num_correct / metrics.num_examples,
        "test_loss": test_loss,
        "validation_accuracy": missing if validation is None else validation.num_correct / validation.num_examples,
        "validation_loss": missing if validation is None else validation.loss_sum / validation.num_examples,
        "corrupted_weight": weight,
        "byzantine_excess": excess,
        "backdoor_success": _rate(success, num_runs),
        "accuracy_p10": percentiles[:, 0],
        "accuracy_p50": percentiles[:, 1],
        "accuracy_p90": percentiles[:, 2],
        "diverged": ~np.isfinite(test_loss) | (np.isnan(weight) if records is not None else False),
    }


def _rate(metrics: Metrics | None, num_runs: int) -> np.ndarray:
    """The share [S] of correct predictions; NaN without examples, or if the loss is not finite."""
    rate = np.full(num_runs, np.nan)
    if metrics is not None:
        has_examples = (metrics.num_examples > 0) & np.isfinite(metrics.loss_sum)
        np.divide(metrics.num_correct, metrics.num_examples, out=rate, where=has_examples)
    return rate


def _byzantine_excess(configs: Sequence[Config], valid: np.ndarray, corrupted: np.ndarray) -> np.ndarray:
    """The share [S] of rounds with more corrupted clients among the `valid` than f; both [S, rounds, K]."""
    num_valid, num_corrupted = valid.sum(axis=2), (valid & corrupted).sum(axis=2)
    f = [assumed_f(config, number) for config, number in zip(configs, num_valid, strict=True)]
    pairs = zip(num_corrupted, f, strict=True)
    return np.asarray([np.nan if limit is None else np.mean(number > limit) for number, limit in pairs])


def corrupted_share(config: Config, num_clients: int) -> float:
    """The share of the clients that is corrupted, as configured."""
    return len(config.corruption.clients) / num_clients or config.corruption.fraction


def lam(config: Config) -> float | None:
    """The setting `lam` of the run's rule; None if it has none, or it is not a number."""
    value = config.section(config.server.aggregator.rpartition(":")[2]).get("lam")
    return value if isinstance(value, int | float) else None


def client_rows(
    runs: Sequence[int],
    last_round: int,
    records: RoundRecord,
    metrics: Metrics,
    alpha: np.ndarray | None,
    num_examples: np.ndarray,
    corrupted: np.ndarray,
    last_only: bool,
) -> Columns:
    """One row a run [S], round and client of the cohort; in `last_round`, if there is `alpha` [S, N], all clients.

    `records` [S, rounds, K] end with `last_round`; `metrics` are those after it, [S] or client by client [S, C];
    `num_examples` and `corrupted` [S, N]. With `last_only` the rounds before it are left out.
    """
    rows = _cohort_rows(last_round, records, alpha)
    if last_only:
        rows = {name: column[:, -1:] for name, column in rows.items()}
    rows = {name: column.ravel() for name, column in rows.items()}
    if alpha is not None:
        other_rows = _other_rows(last_round, np.asarray(records.client_ids)[:, -1], alpha)
        rows = {name: np.concatenate([column, other_rows[name]]) for name, column in rows.items()}
    return _with_clients(rows, runs, last_round, metrics, num_examples, corrupted)


def initial_client_rows(
    runs: Sequence[int], metrics: Metrics, alpha: np.ndarray, num_examples: np.ndarray, corrupted: np.ndarray
) -> Columns:
    """One row a run [S] and client before the first round, with `alpha` [S, N]; the rest as in `client_rows`."""
    empty_cohort = np.empty((len(alpha), 0), int)
    return _with_clients(_other_rows(0, empty_cohort, alpha), runs, 0, metrics, num_examples, corrupted)


def _with_clients(
    rows: Columns,
    runs: Sequence[int],
    last_round: int,
    metrics: Metrics,
    num_examples: np.ndarray,
    corrupted: np.ndarray,
) -> Columns:
    """The `rows` of clients with their runs instead of slots, and with data of each client."""
    run, client_id = rows["slot"], rows["client_id"]
    after_last = rows["round"] == last_round
    accuracy = np.where(after_last, _client_accuracy(metrics, corrupted.shape)[run, client_id], np.nan)
    return {
        "run": np.asarray(runs)[run],
        **{name: column for name, column in rows.items() if name != "slot"},
        "num_examples": num_examples[run, client_id],
        "corrupted": corrupted[run, client_id],
        "test_accuracy": accuracy,
    }


def _cohort_rows(last_round: int, records: RoundRecord, alpha: np.ndarray | None) -> Columns:
    """Columns [S, rounds, K] of each cohort; "slot" is the run's position in its group."""
    client_ids = np.asarray(records.client_ids)
    num_runs, num_rounds, _ = client_ids.shape
    slots, rounds = np.arange(num_runs)[:, None, None], last_round - num_rounds + 1 + np.arange(num_rounds)
    alphas = np.full(client_ids.shape, np.nan, np.float32)
    if alpha is not None:
        alphas[:, -1] = np.take_along_axis(alpha, client_ids[:, -1], axis=1)
    return {
        "slot": np.broadcast_to(slots, client_ids.shape),
        "round": np.broadcast_to(rounds[None, :, None], client_ids.shape),
        "client_id": client_ids,
        "loss": np.asarray(records.losses),
        "alpha": alphas,
        "weight": np.where(records.valid, records.weights, np.nan),
    }


def _other_rows(last_round: int, cohort: np.ndarray, alpha: np.ndarray) -> Columns:
    """The clients that were not in the last `cohort` [S, K], with their `alpha` [S, N]."""
    in_cohort = np.zeros(alpha.shape, bool)
    np.put_along_axis(in_cohort, cohort, True, axis=1)
    slot, client_id = np.nonzero(~in_cohort)
    missing = np.full(len(slot), np.nan)
    return {
        "slot": slot,
        "round": np.full(len(slot), last_round),
        "client_id": client_id,
        "loss": missing,
        "alpha": alpha[slot, client_id],
        "weight": missing,
    }


def _client_accuracy(metrics: Metrics, shape: tuple[int, ...]) -> np.ndarray:
    """The accuracy [S, N] of each client on its own test examples; NaN if it has none, or they belong to no client."""
    accuracy = np.full(shape, np.nan, np.float32)
    if np.ndim(metrics.num_correct) == 2:  # clients from N on are not in training
        num_correct, num_examples = (
            np.asarray(field)[:, : shape[1]] for field in (metrics.num_correct, metrics.num_examples)
        )
        np.divide(num_correct, num_examples, out=accuracy, where=num_examples > 0)
    return accuracy


def info_rows(runs: Sequence[int], last_round: int, info: dict[str, Any]) -> Columns:
    """One row a run, round and name, from the measurements [S, rounds] of rules by name."""
    names = list(info)
    values = np.stack([np.asarray(info[name], np.float64) for name in names], axis=-1)
    num_rounds = values.shape[1]
    rounds = last_round - num_rounds + 1 + np.arange(num_rounds)
    run, round_, name = np.broadcast_arrays(
        np.asarray(runs)[:, None, None], rounds[None, :, None], np.asarray(names, object)
    )
    return {"run": run.ravel(), "round": round_.ravel(), "name": name.ravel(), "value": values.ravel()}
