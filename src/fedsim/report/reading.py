"""Run folders as `Results`."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedsim.errors import ConfigError, RunFolderError
from fedsim.report.cells import PERCENTILES, Cell, Results, Setup
from fedsim.report.final import LAST, Final
from fedsim.report.settings import Run, configuration, data_set, identity, settings, with_labels
from fedsim.runs.folder import RunFolder
from fedsim.runs.schemas import CLIENTS, ROUNDS

Rows = dict[str, np.ndarray]  # the columns of rounds.parquet, sorted by run and round


def read(*folders: RunFolder, final: Final = LAST) -> Results:
    """Reads run folders as if they were one; of a run that several have, the first folder's counts.

    Of an incomplete folder: the runs that have rows, those of a cell up to the last evaluation that all of them have.
    `RunFolderError` where one is broken or has no rows, `ConfigError` where a run has no evaluations that are `final`.
    """
    manifests = tuple(folder.read_manifest() for folder in folders)
    positions: dict[tuple[Any, ...], int] = {}  # of each run, by what it is
    runs: list[Run] = []
    sources: list[tuple[int, int]] = []
    rounds, clients, incomplete, num_missing = [], [], [], 0
    for position, (folder, manifest) in enumerate(zip(folders, manifests, strict=True)):
        is_complete = manifest["status"] == "complete"
        rows_of = folder.read if is_complete else folder.so_far
        table = rows_of("rounds").select(ROUNDS.names)
        missing = set(range(len(manifest["runs"]))) - set(table["run"].to_pylist())
        if missing and is_complete:
            raise RunFolderError(
                f"{folder.path}: no rows of run {min(missing)}; run its config.toml again with --force"
            )
        if not is_complete:
            incomplete.append(_incomplete(folder, manifest, table, len(missing)))
            num_missing += len(missing)
        new = np.full(len(manifest["runs"]), -1)  # position of each run of the folder; -1: it is left out
        for run, config in enumerate(map(configuration, manifest["runs"])):
            if run not in missing and positions.setdefault(identity(config), len(runs)) == len(runs):
                new[run] = len(runs)
                runs.append(config)
                sources.append((position, run))
        rounds.append(_renumbered(table, new))
        clients.append(_renumbered(rows_of("clients").select(CLIENTS.names), new))
    table = pa.concat_tables(rounds)
    rows = {name: table[name].to_numpy() for name in table.column_names}
    # Folders from before the column existed have nulls there.
    rows["diverged"] = pc.coalesce(table["diverged"], table["test_loss"].is_null()).to_numpy()
    runs = with_labels(runs)
    num_repeated = sum(len(manifest["runs"]) for manifest in manifests) - num_missing - len(runs)
    cells = [_with(final, cell) for cell in _cells(runs, rows)]
    every_client = pa.concat_tables(clients)
    return Results(
        folders, manifests, tuple(runs), tuple(sources), cells, every_client, num_repeated, incomplete=tuple(incomplete)
    )


def _incomplete(folder: RunFolder, manifest: dict[str, Any], table: pa.Table, num_missing: int) -> str:
    """What is said of a folder that is not complete, whose rows are `table`."""
    if not len(table):
        raise RunFolderError(f"{folder.path}: has no rows yet; run its config.toml again to go on")
    ends = {run: config["server.num_rounds"] for run, config in enumerate(manifest["runs"])}
    done = sum(
        ends[run] == round_ for run, round_ in zip(table["run"].to_pylist(), table["round"].to_pylist(), strict=True)
    )
    begun = len(ends) - num_missing - done
    parts = [f"{done} of {len(ends)} runs are complete"]
    parts += [f"{begun} {'is' if begun == 1 else 'are'} shown as far as they got"] if begun else []
    parts += [f"{num_missing} without rows {'is' if num_missing == 1 else 'are'} left out"] if num_missing else []
    return f"Incomplete: of {folder.path}, {', '.join(parts)}."


def _with(final: Final, cell: Cell) -> Cell:
    """The cell with what is to be shown of it."""
    number = len(cell.rounds) - 1  # the initial model is none
    if final.kind == "mean" and final.number > number:
        raise ConfigError(f"--final: {final}, but a run has only {number} evaluations; give fewer")
    if final.kind == "best" and np.isnan(cell.validation_loss).all() and np.isnan(cell.validation_accuracy).all():
        raise ConfigError("--final: best goes by validation data; run with data.validation_fraction, such as 0.1")
    return replace(cell, final=final)


def _renumbered(table: pa.Table, new: np.ndarray) -> pa.Table:
    """Rows with `run` replaced by `new[run]`, without those where that is -1."""
    run = new[table["run"].to_numpy()]
    table = table.set_column(0, table.schema.field("run"), pa.array(run, pa.int32()))
    return table if (run >= 0).all() else table.filter(pa.array(run >= 0))


def _cells(runs: list[Run], rows: Rows) -> list[Cell]:
    edges = np.searchsorted(rows["run"], np.arange(len(runs) + 1))
    members: dict[Setup, list[int]] = {}
    for run, (config, others) in enumerate(zip(runs, settings(runs), strict=True)):
        first = edges[run]
        lam = None if np.isnan(rows["lam"][first]) else float(rows["lam"][first])
        fraction = float(rows["fraction"][first])
        kinds = config["corruption.kind"], fraction, config["attack.kind"]
        setup = Setup(data_set(config), config["server.aggregator"], *kinds, lam, others)
        members.setdefault(setup, []).append(run)
    return [_cell(setup, of_setup, rows, edges) for setup, of_setup in members.items()]


def _cell(setup: Setup, runs: list[int], rows: Rows, edges: np.ndarray) -> Cell:
    number = min(edges[run + 1] - edges[run] for run in runs)  # the same for all, where they are complete
    slices = [slice(edges[run], edges[run] + number) for run in runs]
    stacked = lambda name: np.stack([rows[name][part].astype(float) for part in slices])
    return Cell(
        **{field.name: getattr(setup, field.name) for field in fields(Setup)},
        seeds=tuple(int(rows["seed"][part.start]) for part in slices),
        runs=tuple(runs),
        rounds=rows["round"][slices[0]],
        accuracy=stacked("test_accuracy"),
        loss=stacked("test_loss"),
        validation_accuracy=stacked("validation_accuracy"),
        validation_loss=stacked("validation_loss"),
        corrupted_weight=stacked("corrupted_weight"),
        above_f=stacked("above_f"),
        backdoor_success=stacked("backdoor_success"),
        percentiles=np.stack([stacked(name) for name in PERCENTILES]),
        diverged=stacked("diverged").astype(bool),
    )
