"""Run folders as `Results`."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from fedsim.errors import ConfigError, RunFolderError
from fedsim.report.final import LAST, Final
from fedsim.report.metric import METRICS
from fedsim.report.results import Results
from fedsim.report.settings import Setting, SettingKey
from fedsim.report.swept_values import (
    IGNORED,
    Role,
    Run,
    configuration,
    data_set,
    identities,
    is_in_memory,
    malicious_share,
    roles,
    section,
    swept_values,
    with_labels,
)
from fedsim.runs.folder import RunFolder
from fedsim.runs.schemas import CLIENTS, ROUNDS
from fedsim.runs.sweep import section_name

Rows = dict[str, np.ndarray]  # the columns of rounds.parquet, sorted by run and round


def read(*folders: RunFolder, final: Final = LAST) -> Results:
    """Reads run folders as if they were one; of a run that several have, the first folder's is used.

    Of an incomplete folder: the runs that have rows, those of a setting up to the last evaluation that all of them
    have. Raises `RunFolderError` if one is broken or has no rows, `ConfigError` if a run lacks the `final` evaluations,
    or folders have different data in memory, or different plug-ins of one name.
    """
    manifests = tuple(folder.read_manifest() for folder in folders)
    configurations = [list(map(configuration, manifest["runs"])) for manifest in manifests]
    _check_data_in_memory(folders, manifests, configurations)
    _check_plugins(folders, manifests)
    identity = iter(identities(list(chain.from_iterable(configurations))))
    positions: dict[tuple[Any, ...], int] = {}  # of each run, by its identity
    runs: list[Run] = []
    num_clients: list[int] = []
    sources: list[tuple[int, int]] = []
    rounds, clients, incomplete, num_missing = [], [], [], 0
    for position, (folder, manifest) in enumerate(zip(folders, manifests, strict=True)):
        is_complete = manifest["status"] == "complete"
        read_rows = folder.read if is_complete else folder.read_parts
        table = read_rows("rounds").select(ROUNDS.names())
        missing = set(range(len(manifest["runs"]))) - set(table["run"].unique())
        if missing and is_complete:
            raise RunFolderError(
                f"{folder.path}: no rows of run {min(missing)}; run its config.toml again with --force"
            )
        if not is_complete:
            incomplete.append(_describe_incomplete(folder, manifest, table, len(missing)))
            num_missing += len(missing)
        sizes = manifest.get("num_clients") or [config["data.num_clients"] for config in configurations[position]]
        new = np.full(len(manifest["runs"]), -1)  # position of each run of the folder; -1: it is left out
        for run, config in enumerate(configurations[position]):
            key = next(identity)
            if run not in missing and positions.setdefault(key, len(runs)) == len(runs):
                new[run] = len(runs)
                runs.append(config)
                num_clients.append(sizes[run])
                sources.append((position, run))
        if is_complete:
            folder.check_table("info")  # which no report reads
        rounds.append(_renumber(table, new))
        clients.append(_renumber(read_rows("clients").select(CLIENTS.names()), new))
    table = pl.concat(rounds)
    rows = {name: table[name].to_numpy() for name in table.columns}
    rows |= {metric.column: rows[metric.column].astype(float) for metric in METRICS}
    runs = with_labels(runs)
    num_repeated = sum(len(manifest["runs"]) for manifest in manifests) - num_missing - len(runs)
    settings = [_with_final(setting, final) for setting in _make_settings(runs, num_clients, rows)]
    return Results(
        folders,
        manifests,
        tuple(runs),
        tuple(sources),
        settings,
        pl.concat(clients),
        num_repeated,
        incomplete=tuple(incomplete),
    )


def _check_data_in_memory(
    folders: Sequence[RunFolder], manifests: Sequence[dict[str, Any]], configurations: Sequence[Sequence[Run]]
) -> None:
    """Raises `ConfigError` if runs with equal keys of the data have different data in memory, which no key describes.

    A manifest has a digest for each split and partition of the data, then one of their kind.
    """
    first: dict[tuple[Any, ...], int] = {}  # by keys of the data, the position of the first folder
    for position, runs in enumerate(configurations):
        for run in filter(is_in_memory, runs):
            sections = ("data", "arrays", section_name(run["data.partition"]))
            keys = sorted(key for key in run if section(key) in sections and key not in IGNORED)
            earlier = first.setdefault(tuple((key, run[key]) for key in keys), position)
            one, other = (manifests[place].get("data", []) for place in (earlier, position))
            if one != other and (one[-1:] != other[-1:] or set(one[:-1]).isdisjoint(other[:-1])):
                raise ConfigError(
                    f"data: must be the same data set in memory in all folders, but {folders[earlier].path} and "
                    f"{folders[position].path} have different ones; save each as an .npz file for arrays.path"
                )


def _check_plugins(folders: Sequence[RunFolder], manifests: Sequence[dict[str, Any]]) -> None:
    """Raises `ConfigError` if the file of a plug-in has changed between two folders."""
    first: dict[str, tuple[RunFolder, str]] = {}  # by the plug-in's name
    for folder, manifest in zip(folders, manifests, strict=True):
        for name, digest in manifest.get("files", {}).items():
            earlier, before = first.setdefault(name, (folder, digest))
            if digest != before:
                raise ConfigError(
                    f"{name}: must be the same in all folders, but its file has changed between {earlier.path} and "
                    f"{folder.path}; report them apart, or give the new version another name"
                )


def _describe_incomplete(folder: RunFolder, manifest: dict[str, Any], table: pl.DataFrame, num_missing: int) -> str:
    """A sentence on a folder that is not complete, whose rows are `table`."""
    if not len(table):
        raise RunFolderError(f"{folder.path}: has no rows yet; run its config.toml again to resume")
    ends = {run: config["server.num_rounds"] for run, config in enumerate(manifest["runs"])}
    rows = table.select("run", "round").iter_rows()
    num_complete = sum(ends[run] == round_ for run, round_ in rows)
    num_partial = len(ends) - num_missing - num_complete
    parts = [f"{num_complete} of {len(ends)} runs are complete"]
    parts += [f"{num_partial} {_are(num_partial)} shown up to the last evaluation"] if num_partial else []
    parts += [f"{num_missing} without rows {_are(num_missing)} left out"] if num_missing else []
    return f"Incomplete: of {folder.path}, {', '.join(parts)}."


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _with_final(setting: Setting, final: Final) -> Setting:
    """The setting with the evaluations that are to be shown."""
    number = len(setting.rounds) - 1  # without the initial model
    if final.kind == "mean" and final.number > number:
        raise ConfigError(f"--final: must be at most mean:{number}, the evaluations of a run, got {final}")
    no_validation = np.isnan(setting.validation_loss).all() and np.isnan(setting.validation_accuracy).all()
    if final.kind == "best" and no_validation:
        raise ConfigError("--final: best needs validation data; run with data.validation_fraction = 0.1")
    return replace(setting, final=final)


def _renumber(table: pl.DataFrame, new: np.ndarray) -> pl.DataFrame:
    """Rows with `run` replaced by `new[run]`, without those where that is -1."""
    if np.array_equal(new, np.arange(len(new))):
        return table
    run = new[table["run"].to_numpy()]
    return table.with_columns(pl.Series("run", run, pl.Int32)).filter(run >= 0)


def _make_settings(runs: Sequence[Run], num_clients: Sequence[int], rows: Rows) -> list[Setting]:
    edges = np.searchsorted(rows["run"], np.arange(len(runs) + 1))
    members: dict[SettingKey, list[int]] = {}
    # The share of corrupted clients and the number of all in the first split; splits may differ if clients are listed.
    sizes: dict[tuple[Any, ...], tuple[float, int]] = {}
    for run, (config, values) in enumerate(zip(runs, swept_values(runs), strict=True)):
        first = edges[run]
        lam = None if np.isnan(rows["lam"][first]) else float(rows["lam"][first])
        data = data_set(config)
        corrupted = tuple(config[key] for key in ("corruption.clients", "attack.clients", "corruption.fraction"))
        data_sections = ("data", section_name(config["data.partition"]))
        swept_data = [value for value in values if section(value[0]) in data_sections]
        size = float(rows["fraction"][first]), num_clients[run]
        share, total = sizes.setdefault((data, *corrupted, *swept_data), size)
        threat = config["corruption.kind"], share, config["attack.kind"], malicious_share(config, total)
        key = SettingKey(data, config["server.aggregator"], *threat, lam, values)
        members.setdefault(key, []).append(run)
    splits = [config["data.seed"] for config in runs]
    of_keys = roles(runs)
    return [
        _make_setting(key, setting_runs, tuple(splits[run] for run in setting_runs), rows, edges, of_keys)
        for key, setting_runs in members.items()
    ]


def _make_setting(
    key: SettingKey, runs: list[int], splits: tuple[int, ...], rows: Rows, edges: np.ndarray, roles: dict[str, Role]
) -> Setting:
    first = edges[runs]
    number = (edges[np.asarray(runs) + 1] - first).min()  # the same for all if they are complete
    positions = first[:, None] + np.arange(number)
    measurements: dict[str, Any] = {metric.name: rows[metric.column][positions] for metric in METRICS}
    return Setting(
        **vars(key),
        splits=splits,
        roles=roles,
        seeds=tuple(rows["seed"][first].tolist()),
        runs=tuple(runs),
        rounds=rows["round"][positions[0]],
        diverged=rows["diverged"][positions],
        **measurements,
    )
