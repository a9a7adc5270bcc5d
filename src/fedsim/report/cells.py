"""The cells of an experiment: runs that differ in their seed alone, and what is told of each."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.errors import RunFolderError
from fedsim.store import RunFolder

AXES = ("server.aggregator", "corruption.kind", "corruption.fraction", "arfl.lam", "seed")  # columns of their own
LAST = 5  # evaluations
REACHED = 0.9  # of the final accuracy
PERCENTILES = ("accuracy_p10", "accuracy_p50", "accuracy_p90")


@dataclass(frozen=True)
class Cell:
    """Runs that differ in their seed alone. Arrays: S runs, T evaluations."""

    aggregator: str
    corruption: str
    fraction: float
    lam: float | None
    settings: str  # whatever else the experiment sweeps, "key=value", separated by ", "
    seeds: tuple[int, ...]
    runs: tuple[int, ...]
    rounds: np.ndarray  # [T]
    accuracy: np.ndarray  # [S, T]
    corrupted_weight: np.ndarray  # [S, T], NaN where null
    percentiles: np.ndarray  # [3, S, T] of the accuracy over clients, NaN where null


@dataclass(frozen=True)
class Results:
    """A run folder, read."""

    folder: RunFolder
    manifest: dict[str, Any]
    cells: list[Cell]
    clients: pa.Table


def read(folder: RunFolder) -> Results:
    """Reads a complete run folder; `RunFolderError` where it is incomplete or broken."""
    manifest = folder.read_manifest()
    table = folder.read("rounds")
    rows = {name: table[name].to_numpy() for name in table.column_names}
    if missing := set(range(len(manifest["runs"]))) - set(rows["run"].tolist()):
        raise RunFolderError(f"{folder.path}: no rows of run {min(missing)}; run its config.toml again with --force")
    varied = [key for key in manifest["runs"][0] if len({str(run[key]) for run in manifest["runs"]}) > 1]
    others = [key for key in varied if key not in AXES]
    members: dict[tuple[str, str, float, float | None, str], list[int]] = {}
    for run, config in enumerate(manifest["runs"]):
        settings = ", ".join(f"{key}={config[key]}" for key in others)
        first = np.searchsorted(rows["run"], run)
        lam = None if np.isnan(rows["lam"][first]) else float(rows["lam"][first])
        axes = (str(rows["aggregator"][first]), str(rows["corruption"][first]), float(rows["fraction"][first]), lam)
        members.setdefault((*axes, settings), []).append(run)
    cells = [_cell(key, runs, rows) for key, runs in members.items()]
    return Results(folder, manifest, cells, folder.read("clients"))


def _cell(key: tuple[str, str, float, float | None, str], runs: list[int], rows: dict[str, np.ndarray]) -> Cell:
    slices = [slice(*np.searchsorted(rows["run"], [run, run + 1])) for run in runs]
    stacked = lambda name: np.stack([rows[name][part].astype(float) for part in slices])
    seeds = tuple(int(rows["seed"][part.start]) for part in slices)
    rounds = rows["round"][slices[0]]
    percentiles = np.stack([stacked(name) for name in PERCENTILES])
    return Cell(*key, seeds, tuple(runs), rounds, stacked("test_accuracy"), stacked("corrupted_weight"), percentiles)


def summary(results: Results) -> list[dict[str, Any]]:
    """One row a cell; None where there is nothing to say. Standard deviations over the seeds, ddof 1."""
    return [_summary_row(cell, results.clients) for cell in results.cells]


def _summary_row(cell: Cell, clients: pa.Table) -> dict[str, Any]:
    final, last = cell.accuracy[:, -1], cell.accuracy[:, -LAST:].mean(axis=1)
    reached = [int(cell.rounds[np.argmax(run >= REACHED * run[-1])]) for run in cell.accuracy]
    by_client = dict(zip(PERCENTILES, cell.percentiles[:, :, -1], strict=True))
    aucs = [auc for run in cell.runs if (auc := weight_auc(clients, run)) is not None]
    return {
        "aggregator": cell.aggregator,
        "corruption": cell.corruption,
        "fraction": cell.fraction,
        "lam": cell.lam,
        "settings": cell.settings,
        "num_runs": len(cell.runs),
        "final_accuracy_mean": final.mean(),
        "final_accuracy_std": std(final),
        "last5_accuracy_mean": last.mean(),
        "last5_accuracy_std": std(last),
        "rounds_to_90_mean": np.mean(reached),
        "weight_auc_mean": np.mean(aucs) if aucs else None,
        **{f"{name}_mean": None if np.isnan(p).any() else p.mean() for name, p in by_client.items()},
    }


def std(values: np.ndarray) -> float | None:
    """Standard deviation with ddof 1; None of a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def weight_auc(clients: pa.Table, run: int) -> float | None:
    """How well the weights of `run` tell corrupted from benign clients, over the second half of its rounds.

    The probability that a benign client's weight, relative to what FedAvg would give it in that round, is larger than a
    corrupted one's (area under the ROC curve; 1/2: not at all). None where either kind is missing.
    """
    from sklearn.metrics import roc_auc_score

    first, last = np.searchsorted(clients["run"].to_numpy(), [run, run + 1])
    part = clients.slice(first, last - first)
    part = part.filter(pc.and_(part["weight"].is_valid(), pc.greater(part["count"], 0)))
    rounds, count, weight = (part[name].to_numpy() for name in ("round", "count", "weight"))
    if len(rounds) == 0:
        return None
    _, in_round = np.unique(rounds, return_inverse=True)
    fedavg = count / np.bincount(in_round, weights=count)[in_round]
    given = np.bincount(in_round, weights=weight)[in_round]
    late = (rounds > rounds.max() / 2) & (given > 0)
    benign = ~part["corrupted"].to_numpy()[late]
    if benign.all() or not benign.any():
        return None
    return float(roc_auc_score(benign, np.round(weight / fedavg, 5)[late]))


def as_csv(rows: list[dict[str, Any]]) -> str:
    """The summary as CSV; numbers with six digits, empty for None."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    return text.getvalue()


def scenarios(cells: list[Cell]) -> list[tuple[str, float]]:
    """The (corruption, fraction) of the cells: clean first, then as they come, by fraction."""
    kinds = list(dict.fromkeys(cell.corruption for cell in cells))
    found = {(cell.corruption, cell.fraction) for cell in cells}
    return sorted(found, key=lambda s: (s[0] != "none" or s[1] > 0, kinds.index(s[0]), s[1]))


def in_scenario(cells: list[Cell], scenario: tuple[str, float]) -> Iterator[Cell]:
    """The cells with this (corruption, fraction)."""
    return (cell for cell in cells if (cell.corruption, cell.fraction) == scenario)
