"""Run folders as one table."""

from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import polars as pl
from polars import col

from fedsim.errors import ConfigError, RunFolderError
from fedsim.report.final import LAST, Final
from fedsim.report.keys import (
    IGNORED,
    Run,
    configuration,
    data_set,
    identities,
    is_in_memory,
    section,
    setting_keys,
    swept_values,
    with_labels,
)
from fedsim.report.names import SweptValues
from fedsim.report.results import Results
from fedsim.report.settings import Setting
from fedsim.runs.folder import RunFolder
from fedsim.runs.schemas import CLIENTS, ROUNDS
from fedsim.runs.sweep import key_column, section_name, varying_keys

# What distinguishes a setting from others: the first fields of `Setting`.
SettingKey = tuple[str, str, str, float, str, float | None, float | None, SweptValues]


def load(*paths: RunFolder | Path | str, final: Final = LAST) -> Results:
    """Run folders as if they were one; of a run that several have, the first folder's is used.

    Of an incomplete folder: the runs that have rows, those of a setting up to the last evaluation that all of them
    have. Raises `RunFolderError` if one is broken or has no rows, `ConfigError` if a run lacks the `final` evaluations,
    or folders have different data in memory, or different plug-ins of one name.
    """
    folders = tuple(path if isinstance(path, RunFolder) else RunFolder(Path(path)) for path in paths)
    manifests = tuple(folder.read_manifest() for folder in folders)
    configurations = [list(map(configuration, manifest["runs"])) for manifest in manifests]
    _check_data_in_memory(folders, manifests, configurations)
    _check_plugins(folders, manifests)
    identity = iter(identities(list(chain.from_iterable(configurations))))
    sources: dict[tuple[Any, ...], tuple[int, int]] = {}  # of each run, by its identity: folder and position there
    rounds, clients, incomplete, num_missing = [], [], [], 0
    for position, (folder, manifest) in enumerate(zip(folders, manifests, strict=True)):
        is_complete = manifest["status"] == "complete"
        read_rows = folder.read if is_complete else folder.read_parts
        table = read_rows("rounds").select(ROUNDS.names())
        missing = set(range(len(manifest["runs"]))) - set(table["run"].unique())
        if not is_complete:
            incomplete.append(_describe_incomplete(folder, manifest, table, len(missing)))
        elif missing:
            raise RunFolderError(
                f"{folder.path}: no rows of run {min(missing)}; run its config.toml again with --force"
            )
        else:
            folder.check_table("info")  # which no report reads
        num_missing += len(missing)
        new: dict[int, int] = {}  # position of each run of the folder that is not left out
        for run, key in enumerate(islice(identity, len(manifest["runs"]))):
            if run not in missing and sources.setdefault(key, (position, run)) == (position, run):
                new[run] = len(sources) - 1
        rounds.append(_renumber(table, new))
        clients.append(_renumber(read_rows("clients").select(CLIENTS.names()), new))
    table = pl.concat(rounds).with_columns(pl.selectors.float().fill_nan(None))
    runs = with_labels([configurations[folder][run] for folder, run in sources.values()])
    sizes = [manifest.get("num_clients") for manifest in manifests]  # older folders have none
    num_clients = [of[run] if (of := sizes[folder]) else None for folder, run in sources.values()]
    settings, table = _with_settings(runs, num_clients, table)
    _check_final(final, table)
    return Results(
        folders,
        manifests,
        tuple(runs),
        tuple(sources.values()),
        settings,
        _with_keys(table, runs),
        pl.concat(clients),
        final,
        num_repeated=sum(map(len, configurations)) - num_missing - len(runs),
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
    num_complete = sum(ends[run] == round_ for run, round_ in table.select("run", "round").rows())
    num_partial = len(ends) - num_missing - num_complete
    are = lambda number: "is" if number == 1 else "are"
    parts = [f"{num_complete} of {len(ends)} runs are complete"]
    parts += [f"{num_partial} {are(num_partial)} shown up to the last evaluation"] if num_partial else []
    parts += [f"{num_missing} without rows {are(num_missing)} left out"] if num_missing else []
    return f"Incomplete: of {folder.path}, {', '.join(parts)}."


def _check_final(final: Final, table: pl.DataFrame) -> None:
    """Raises `ConfigError` if a setting lacks the evaluations that are to be shown."""
    of_settings = table.group_by("setting").agg(
        col("evaluation").max(), col("validation_loss", "validation_accuracy").null_count(), pl.len()
    )
    number = min(of_settings["evaluation"])  # without the initial model
    if final.kind == "mean" and final.number > number:
        raise ConfigError(f"--final: must be at most mean:{number}, the evaluations of a run, got {final}")
    has_none = (col("validation_loss") == col("len")) & (col("validation_accuracy") == col("len"))
    if final.kind == "best" and of_settings.select(has_none.any()).item():
        raise ConfigError("--final: best needs validation data; run with data.validation_fraction = 0.1")


def _renumber(table: pl.DataFrame, new: dict[int, int]) -> pl.DataFrame:
    """Rows with `run` replaced by `new[run]`, without those of other runs."""
    run = col("run").replace_strict(new, default=None, return_dtype=pl.Int32)
    return table.with_columns(run).filter(col("run").is_not_null())


def _with_settings(
    runs: Sequence[Run], num_clients: Sequence[int | None], table: pl.DataFrame
) -> tuple[list[Setting], pl.DataFrame]:
    """The settings, and the rows with columns "setting" and "evaluation", as far as all runs of a setting go."""
    first = table.group_by("run", maintain_order=True).agg(col("lam", "fraction").first()).sort("run")
    members: dict[SettingKey, list[int]] = {}
    # The share of corrupted clients and the number of all in the first split; splits may differ if clients are listed.
    sizes: dict[tuple[Any, ...], tuple[float, int]] = {}
    for (run, lam, fraction), values in zip(first.rows(), swept_values(runs), strict=True):
        config = runs[run]
        data = data_set(config)
        malicious = config["attack.clients"]
        corrupted = config["corruption.clients"], malicious, config["corruption.fraction"]
        data_sections = ("data", section_name(config["data.partition"]))
        swept_data = [value for value in values if section(value[0]) in data_sections]
        of_run = fraction, num_clients[run] or config["data.num_clients"]
        share, total = sizes.setdefault((data, *corrupted, *swept_data), of_run)
        malicious_share = len(malicious) / total if malicious else config["attack.fraction"]
        threat = config["corruption.kind"], share, config["attack.kind"], malicious_share
        key = data, config["server.aggregator"], *threat, lam, values
        members.setdefault(key, []).append(run)
    positions = {run: position for position, of in enumerate(members.values()) for run in of}
    setting = col("run").replace_strict(positions, return_dtype=pl.Int32).alias("setting")
    table = table.with_columns(setting, pl.int_range(pl.len()).over("run").alias("evaluation"))
    last = col("evaluation").max().over("run").min().over("setting")
    table = table.filter(col("evaluation") <= last)
    rounds = dict(table.group_by("setting").agg(col("round").unique(maintain_order=True)).iter_rows())
    draws = [(config["data.seed"], config["seed"]) for config in runs]
    roles = setting_keys(runs)
    settings = [
        Setting(*key, position, tuple(map(draws.__getitem__, of)), tuple(of), tuple(rounds[position]), roles)
        for position, (key, of) in enumerate(members.items())
    ]
    return settings, table


def _with_keys(table: pl.DataFrame, runs: Sequence[Run]) -> pl.DataFrame:
    """The table with a column for each key, and the name of the data set; null where a key does not apply."""
    varying = set(varying_keys(runs)) | {key for run in runs for key in (run.keys() ^ runs[0].keys())}
    keys = [key for key in dict.fromkeys(chain.from_iterable(runs)) if key not in table.columns]
    columns = [key_column(key, [run.get(key) for run in runs]) for key in keys if key in varying]
    of_runs = pl.DataFrame([pl.Series("data", list(map(data_set, runs))), *columns])
    constants = [pl.lit(key_column(key, [runs[0][key]])[0]).alias(key) for key in keys if key not in varying]
    return table.hstack(of_runs[table["run"]]).with_columns(constants)
