"""The cells of an experiment: runs that differ in their seed alone, read from one run folder or several."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.errors import RunFolderError
from fedsim.report.settings import Run, Settings, configuration, data_set, identity, settings
from fedsim.store import CLIENTS, RunFolder

Key = tuple[str, str, str, float, float | None, Settings]  # the first fields of a cell, which tell cells apart
PERCENTILES = ("accuracy_p10", "accuracy_p50", "accuracy_p90")


@dataclass(frozen=True)
class Cell:
    """Runs that differ in their seed alone. Arrays: S runs, T evaluations."""

    data: str  # name of the data set
    aggregator: str
    corruption: str
    fraction: float
    lam: float | None
    settings: Settings  # whatever else varies, (key, value)
    seeds: tuple[int, ...]  # [S]
    runs: tuple[int, ...]  # [S] positions in `Results.runs`
    rounds: np.ndarray  # [T]
    accuracy: np.ndarray  # [S, T] 0 to 1
    loss: np.ndarray  # [S, T] nats, NaN where null
    corrupted_weight: np.ndarray  # [S, T], NaN where null
    percentiles: np.ndarray  # [3, S, T] of the accuracy over clients, NaN where null
    diverged: np.ndarray  # [S, T] bool

    @property
    def num_diverged(self) -> int:
        """Runs that are diverged at the end."""
        return int(self.diverged[:, -1].sum())


@dataclass(frozen=True)
class Results:
    """Run folders, read."""

    folders: tuple[RunFolder, ...]
    manifests: tuple[dict[str, Any], ...]
    runs: tuple[Run, ...]  # the configuration of each run by dotted key
    cells: list[Cell]
    clients: pa.Table  # clients.parquet of all folders; `run` is a position in `runs`
    num_repeated: int  # runs that were left out, because a folder before had them

    @property
    def manifest(self) -> dict[str, Any]:
        """The first folder's."""
        return self.manifests[0]


def read(*folders: RunFolder) -> Results:
    """Reads complete run folders as if they were one; of a run that several have, the first folder's counts.

    `RunFolderError` where one is incomplete or broken.
    """
    manifests = tuple(folder.read_manifest() for folder in folders)
    positions: dict[tuple[Any, ...], int] = {}
    runs: list[Run] = []
    rounds, clients = [], []
    for folder, manifest in zip(folders, manifests, strict=True):
        new = np.full(len(manifest["runs"]), -1)  # position of each run of the folder; -1: it is there already
        for run, config in enumerate(map(configuration, manifest["runs"])):
            if positions.setdefault(identity(config), len(runs)) == len(runs):
                new[run] = len(runs)
                runs.append(config)
        table = folder.read("rounds")
        if missing := set(range(len(new))) - set(table["run"].to_pylist()):
            raise RunFolderError(
                f"{folder.path}: no rows of run {min(missing)}; run its config.toml again with --force"
            )
        rounds.append(_renumbered(table, new))
        clients.append(_renumbered(folder.read("clients"), new))
    table = pa.concat_tables(rounds)
    rows = {name: table[name].to_numpy() for name in table.column_names}
    # Folders from before the column existed have nulls there.
    rows["diverged"] = pc.coalesce(table["diverged"], table["test_loss"].is_null()).to_numpy()
    num_repeated = sum(len(manifest["runs"]) for manifest in manifests) - len(runs)
    return Results(folders, manifests, tuple(runs), _cells(runs, rows), pa.concat_tables(clients), num_repeated)


def _renumbered(table: pa.Table, new: np.ndarray) -> pa.Table:
    """Rows with `run` replaced by `new[run]`, without those where that is -1."""
    run = new[table["run"].to_numpy()]
    table = table.set_column(0, CLIENTS.field("run"), pa.array(run, pa.int32()))
    return table if (run >= 0).all() else table.filter(pa.array(run >= 0))


def _cells(runs: list[Run], rows: dict[str, np.ndarray]) -> list[Cell]:
    edges = np.searchsorted(rows["run"], np.arange(len(runs) + 1))
    members: dict[Key, list[int]] = {}
    for run, (config, others) in enumerate(zip(runs, settings(runs), strict=True)):
        first = edges[run]
        lam = None if np.isnan(rows["lam"][first]) else float(rows["lam"][first])
        axes = (str(rows["aggregator"][first]), str(rows["corruption"][first]), float(rows["fraction"][first]), lam)
        members.setdefault((data_set(config), *axes, others), []).append(run)
    return [_cell(key, chosen, rows, edges) for key, chosen in members.items()]


def _cell(key: Key, runs: list[int], rows: dict[str, np.ndarray], edges: np.ndarray) -> Cell:
    slices = [slice(edges[run], edges[run + 1]) for run in runs]
    stacked = lambda name: np.stack([rows[name][part].astype(float) for part in slices])
    accuracy, loss, weight = (stacked(name) for name in ("test_accuracy", "test_loss", "corrupted_weight"))
    percentiles, diverged = np.stack([stacked(name) for name in PERCENTILES]), stacked("diverged").astype(bool)
    seeds = tuple(int(rows["seed"][part.start]) for part in slices)
    rounds = rows["round"][slices[0]]
    return Cell(*key, seeds, tuple(runs), rounds, accuracy, loss, weight, percentiles, diverged)


def data_sets(cells: list[Cell]) -> list[str]:
    """The data sets of the cells, as they come."""
    return list(dict.fromkeys(cell.data for cell in cells))


def scenarios(cells: list[Cell]) -> list[tuple[str, float]]:
    """The (corruption, fraction) of the cells: clean first, then as they come, by fraction."""
    kinds = list(dict.fromkeys(cell.corruption for cell in cells))
    found = {(cell.corruption, cell.fraction) for cell in cells}
    return sorted(found, key=lambda s: (s[0] != "none" or s[1] > 0, kinds.index(s[0]), s[1]))


def in_scenario(cells: list[Cell], scenario: tuple[str, float]) -> Iterator[Cell]:
    """The cells with this (corruption, fraction)."""
    return (cell for cell in cells if (cell.corruption, cell.fraction) == scenario)
