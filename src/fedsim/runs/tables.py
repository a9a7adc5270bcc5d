"""Rows of a run folder's tables from the arrays of a chunk of rounds. NaN stands for null."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fedsim.config.clients import assumed_f, corrupted_share
from fedsim.config.components import positions_by
from fedsim.config.schema import Config
from fedsim.core.evaluate import PERCENTILES, accuracy_percentiles
from fedsim.core.types import Metrics, RoundRecord
from fedsim.runs.schemas import Columns


class RunClients(NamedTuple):
    """What is known of the clients of each run."""

    clean_num_examples: np.ndarray
    """[N] training examples in rounds without corruption."""
    num_examples: np.ndarray
    """[S, N] training examples in rounds with corruption."""
    corrupted_rounds: np.ndarray
    """[S, 2], the first and the last round with corruption."""
    corrupted: np.ndarray
    """[S, N] bool, whether their data are corrupted."""
    malicious: np.ndarray
    """[S, N] bool, whether they forge reports; none do without an attack."""


def round_rows(
    configs: Sequence[Config],
    runs: Sequence[int],
    round_: int,
    metrics: Metrics,
    records: RoundRecord | None,
    clients: RunClients,
    success: Metrics | None = None,
    validation: Metrics | None = None,
) -> Columns:
    """One row a run [S], after `round_` rounds.

    `metrics` [S], or client by client [S, C]; `records` [S, rounds, K] are those since the evaluation before; `success`
    [S] are the metrics on triggered test examples, without examples for a run without a backdoor; `validation` [S]
    those on the validation data.
    """
    num_runs, num_clients = len(configs), clients.corrupted.shape[1]
    corrupted_weight, malicious_weight, excess, lams = np.full((4, num_runs), np.nan)
    for positions in _by_rule(configs):
        lams[positions] = lam(configs[positions[0]])
    if records is not None:
        corrupted_weight = _share_of_weight(records, clients.corrupted)
        has_attack = [config.attack.kind != "none" for config in configs]
        malicious_weight = np.where(has_attack, _share_of_weight(records, clients.malicious), np.nan)
        excess = _byzantine_excess(configs, records, counted_by_f(configs, clients))
    percentiles = np.full((num_runs, len(PERCENTILES)), np.nan)
    if np.ndim(metrics.num_correct) == 2:
        percentiles = accuracy_percentiles(np.asarray(metrics.num_correct), np.asarray(metrics.num_examples))
        metrics = jax.tree.map(lambda field: np.sum(field, axis=1), metrics)
    test_loss = metrics.loss_sum / metrics.num_examples
    missing = np.full(num_runs, np.nan)
    return {
        "run": runs,
        "aggregator": [c.server.aggregator for c in configs],
        "corruption": [c.corruption.kind for c in configs],
        "fraction": [corrupted_share(c, num_clients) for c in configs],
        "lam": lams,
        "seed": [c.seed for c in configs],
        "round": [round_] * num_runs,
        "test_accuracy": metrics.num_correct / metrics.num_examples,
        "test_loss": test_loss,
        "validation_accuracy": missing if validation is None else validation.num_correct / validation.num_examples,
        "validation_loss": missing if validation is None else validation.loss_sum / validation.num_examples,
        "corrupted_weight": corrupted_weight,
        "malicious_weight": malicious_weight,
        "byzantine_excess": excess,
        "backdoor_success": _rate(success, num_runs),
        **{f"accuracy_p{p}": percentiles[:, i] for i, p in enumerate(PERCENTILES)},
        "diverged": ~np.isfinite(test_loss) | (np.isnan(corrupted_weight) if records is not None else False),
    }


def _rate(metrics: Metrics | None, num_runs: int) -> np.ndarray:
    """The share [S] of correct predictions; NaN without examples, or if the loss is not finite."""
    rate = np.full(num_runs, np.nan)
    if metrics is not None:
        has_examples = (metrics.num_examples > 0) & np.isfinite(metrics.loss_sum)
        np.divide(metrics.num_correct, metrics.num_examples, out=rate, where=has_examples)
    return rate


def counted_by_f(configs: Sequence[Config], clients: RunClients) -> np.ndarray:
    """The clients [S, N] that a rule's f counts: corrupted and malicious ones.

    With `server.weighting`, which is to deal with corrupted data, or `server.num_byzantine = "malicious"`, only the
    malicious ones.
    """
    servers = [config.server for config in configs]
    only_malicious = np.asarray([s.weighting is not None or s.num_byzantine == "malicious" for s in servers])
    return clients.malicious | (clients.corrupted & ~only_malicious[:, None])


def _in_cohorts(records: RoundRecord, clients: np.ndarray) -> np.ndarray:
    """The marks [S, N] of clients, of those in the cohorts [S, rounds, K]."""
    return np.take_along_axis(clients[:, None], np.asarray(records.client_ids), axis=2)


def _share_of_weight(records: RoundRecord, clients: np.ndarray) -> np.ndarray:
    """The share [S] of the weight of all rounds that `clients` [S, N] had; NaN if there was none."""
    total = records.weights.sum(axis=(1, 2), dtype=np.float64)
    part = (records.weights * _in_cohorts(records, clients)).sum(axis=(1, 2), dtype=np.float64)
    return np.divide(part, total, out=np.full(len(total), np.nan), where=total > 0)


def _byzantine_excess(configs: Sequence[Config], records: RoundRecord, clients: np.ndarray) -> np.ndarray:
    """The share [S] of rounds with more of `clients` [S, N] among the valid ones of the cohort than f."""
    valid = np.asarray(records.valid)
    num_valid, num_byzantine = valid.sum(axis=2), (valid & _in_cohorts(records, clients)).sum(axis=2)
    excess = np.full(len(configs), np.nan)
    for positions in _by_rule(configs):
        f = assumed_f(configs[positions[0]], num_valid[positions])
        if f is not None:
            excess[positions] = np.mean(num_byzantine[positions] > f, axis=1)
    return excess


def _by_rule(configs: Sequence[Config]) -> Iterable[list[int]]:
    """The runs that share rule, pre-aggregators and all settings: thousands of runs have few different ones."""
    return positions_by(configs, "server.aggregator", "server.pre_aggregators", "settings").values()


def lam(config: Config) -> float | None:
    """The setting `lam` of the run's rule; None if it has none, or it is not a number."""
    value = config.section(config.server.aggregator.rpartition(":")[2]).get("lam")
    return value if isinstance(value, int | float) else None


def client_rows(
    runs: Sequence[int],
    last_round: int,
    records: RoundRecord | None,
    metrics: Metrics,
    alpha: np.ndarray | None,
    clients: RunClients,
    last_only: bool,
) -> Columns:
    """One row a run [S], round and client of the cohort; in `last_round`, if there is `alpha` [S, N], all clients.

    `records` [S, rounds, K] end with `last_round`, None before the first round; `metrics` are those after it, [S] or
    client by client [S, C]. With `last_only` the rounds before it are left out.
    """
    ids = losses = weights = np.empty((len(runs), 1, 0), int)
    if records is not None:
        kept = slice(-1 if last_only else None, None)
        weights = np.where(records.valid, records.weights, np.nan)[:, kept]
        ids, losses = np.asarray(records.client_ids)[:, kept], np.asarray(records.losses)[:, kept]
    position, offset, _ = np.indices(ids.shape)
    is_other = np.full(clients.corrupted.shape, alpha is not None)  # has a row, although not in the last cohort
    np.put_along_axis(is_other, ids[:, -1], False, axis=1)
    other_position, other_id = is_other.nonzero()
    missing = np.full(len(other_id), np.nan, np.float32)
    join = lambda cohorts, others: np.concatenate([np.ravel(cohorts), others])
    position, client_id = join(position, other_position), join(ids, other_id)
    round_ = join(last_round + 1 - ids.shape[1] + offset, np.full(len(other_id), last_round))
    first, last = clients.corrupted_rounds[position].T
    sizes = (clients.num_examples[position, client_id], clients.clean_num_examples[client_id])
    after_last = lambda values: np.where(round_ == last_round, values[position, client_id], np.nan)
    return {
        "run": np.asarray(runs)[position],
        "round": round_,
        "client_id": client_id,
        "num_examples": np.where((first <= round_) & (round_ <= last), *sizes),
        "loss": join(losses, missing),
        "alpha": after_last(np.full(is_other.shape, np.nan) if alpha is None else alpha),
        "weight": join(weights, missing),
        "corrupted": clients.corrupted[position, client_id],
        "malicious": clients.malicious[position, client_id],
        "test_accuracy": after_last(_client_accuracy(metrics, is_other.shape)),
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


def info_rows(runs: Sequence[int], last_round: int, *quantities: Mapping[str, Any]) -> Columns:
    """One row a run, round and name, from values [S, rounds] by name, the last of which are of `last_round`."""
    parts = [_info_rows(runs, last_round, part) for part in quantities if part]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}


def _info_rows(runs: Sequence[int], last_round: int, info: Mapping[str, Any]) -> Columns:
    names = list(info)
    values = np.stack([np.asarray(info[name], np.float64) for name in names], axis=-1)
    num_rounds = values.shape[1]
    rounds = last_round - num_rounds + 1 + np.arange(num_rounds)
    run, round_, name = np.broadcast_arrays(
        np.asarray(runs)[:, None, None], rounds[None, :, None], np.asarray(names, object)
    )
    return {"run": run.ravel(), "round": round_.ravel(), "name": name.ravel(), "value": values.ravel()}


def measured_quantities(
    metrics: Metrics, by_class: Metrics | None, personal: Metrics | None, classes: Sequence[str], clients: Sequence[str]
) -> dict[str, np.ndarray]:
    """The quantities [S, 1] that a task names, the test accuracy of each class, and that of the clients' own models.

    The last also client by client, of `clients` if these have names.
    `metrics` are [S], or client by client [S, C]; `by_class` [S, num_classes]; `personal` [S, N]. NaN without examples.
    """
    over_clients = lambda values: np.asarray(values).reshape(len(values), -1).sum(axis=1)
    named = {name: tuple(map(over_clients, pair)) for name, pair in metrics.named.items()}
    if by_class is not None:
        names = classes or range(by_class.num_correct.shape[1])
        named |= {
            f"class_accuracy/{name}": (by_class.num_correct[:, number], by_class.num_examples[:, number])
            for number, name in enumerate(names)
        }
    percentiles: dict[str, np.ndarray] = {}
    if personal is not None and np.any(personal.num_examples):
        named["personal_accuracy"] = over_clients(personal.num_correct), over_clients(personal.num_examples)
        each = accuracy_percentiles(np.asarray(personal.num_correct), np.asarray(personal.num_examples))
        percentiles = {f"personal_accuracy_p{p}": each[:, [i]] for i, p in enumerate(PERCENTILES)}
        for client in np.flatnonzero(personal.num_examples[0]).tolist():
            pair = personal.num_correct[:, client], personal.num_examples[:, client]
            named[f"personal_accuracy/{clients[client] if len(clients) else client}"] = pair
    with np.errstate(invalid="ignore", divide="ignore"):
        return {name: (total / count)[:, None] for name, (total, count) in named.items()} | percentiles
