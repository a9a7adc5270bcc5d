"""Run folders as one table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from polars import col

from fedsim.errors import ConfigError, RunFolderError
from fedsim.report.final import LAST, Final
from fedsim.report.keys import (
    Run,
    configuration,
    data_set,
    identities,
    section,
    setting_keys,
    swept_values,
    with_labels,
)
from fedsim.report.mixtures import check_inputs
from fedsim.report.names import SweptValues, count
from fedsim.report.results import Results
from fedsim.report.settings import Setting
from fedsim.runs.folder import RunFolder, StoredRun
from fedsim.runs.groups import ROUNDS as NUM_ROUNDS
from fedsim.runs.sweep import key_column, lam_key, section_name, split_common

if TYPE_CHECKING:
    from fedsim.config.experiment import Experiment

# What distinguishes a setting from others: the first fields of `Setting`.
SettingKey = tuple[str, str, str, float, str, float | None, float | None, SweptValues]


def load(*paths: RunFolder | Path | str, final: Final = LAST, config: "Experiment | None" = None) -> Results:
    """Run folders as if they were one; of a run that several have, the first folder's is used.

    With `config`, only the runs of that experiment, in its order and with its rounds. Of incomplete runs, those that
    have rows, those of a setting up to the last evaluation that all of them have. Raises `RunFolderError` if a folder
    is broken, or has no rows, or no runs of `config`; `ConfigError` if a run lacks the `final` evaluations, or folders
    have different data in memory, or different plug-ins of one name.
    """
    folders = tuple(path if isinstance(path, RunFolder) else RunFolder(Path(path)) for path in paths)
    runs_of = [[run._replace(keys=configuration(run.keys)) for run in folder.runs()] for folder in folders]
    notes: list[str] = []
    if config is not None:
        runs_of, notes = _select(folders, runs_of, config)
    notes += check_inputs(folders, runs_of)
    every = [run.keys for run in chain.from_iterable(runs_of)]
    identity: Iterator[Any] = iter(identities(every) if len(folders) > 1 else range(len(every)))
    sources: dict[Any, tuple[int, int]] = {}  # of each run, by its identity: folder and position there
    rounds, clients, num_missing = [], [], 0
    for position, (folder, stored) in enumerate(zip(folders, runs_of, strict=True)):
        table = _read("rounds", folder, stored)
        if config is None and not len(table):
            raise RunFolderError(f"{folder.path}: has no rows yet; run its configuration again to resume")
        ends = dict(table.group_by("run").agg(col("round").max()).iter_rows())
        notes += _describe_incomplete(folder, stored, ends)
        new: dict[int, int] = {}  # position of each run of the folder that is not left out
        for run, key in enumerate(islice(identity, len(stored))):
            if run in ends and sources.setdefault(key, (position, run)) == (position, run):
                new[run] = len(sources) - 1
        num_missing += len(stored) - len(ends)
        rounds.append(_renumber(table, new))
        clients.append(_renumber(_read("clients", folder, stored), new))
        for group in dict.fromkeys(run.group for run in stored):
            group.check("info")  # which no report reads
    if not sources:
        raise RunFolderError(f"{folders[0].path}: has no rows of these runs yet; run their configuration to resume")
    table = pl.concat(rounds).with_columns(pl.selectors.float().fill_nan(None))
    shown = [(folders[folder], runs_of[folder][run]) for folder, run in sources.values()]
    runs = with_labels([run.keys for _, run in shown])
    _, different = split_common(runs)
    settings, table = _with_settings(runs, different, [run.num_clients for _, run in shown], table)
    _check_final(final, table)
    return Results(
        folders,
        tuple(runs),
        tuple(shown),
        settings,
        _with_keys(table, runs, different),
        pl.concat(clients),
        final,
        num_repeated=sum(map(len, runs_of)) - num_missing - len(runs),
        notes=tuple(notes),
        config=config,
    )


def _select(
    folders: Sequence[RunFolder], runs_of: Sequence[Sequence[StoredRun]], config: "Experiment"
) -> tuple[list[list[StoredRun]], list[str]]:
    """The runs of the experiment that each folder has, up to its rounds; a sentence if some are in none."""
    from fedsim.config.roles import run_id

    wanted = {run_id(run): run.server.num_rounds for run in config.runs()}
    selected: list[list[StoredRun]] = []
    for runs in runs_of:
        stored = {run.id: run for run in runs}
        selected.append([_up_to(stored[key], rounds) for key, rounds in wanted.items() if key in stored])
    found = {run.id for runs in selected for run in runs}
    names, missing = ", ".join(str(folder.path) for folder in folders), len(wanted.keys() - found)
    if missing == len(wanted):
        raise RunFolderError(
            f"{names}: must have runs of {config.name}, but none has its keys; leave out --config to show all runs"
        )
    lacks = f"Incomplete: {names} lacks {missing} of {count(len(wanted), 'run')} of {config.name}."
    return selected, [lacks] if missing else []


def _up_to(run: StoredRun, num_rounds: int) -> StoredRun:
    """The run as if it had these rounds, which it may have before others."""
    is_complete = run.is_complete or run.keys[NUM_ROUNDS] > num_rounds
    return run._replace(keys=run.keys | {NUM_ROUNDS: num_rounds}, is_complete=is_complete)


def _read(kind: str, folder: RunFolder, runs: Sequence[StoredRun]) -> pl.DataFrame:
    """The rows of the runs, up to the last round that is in their keys."""
    table = folder.read(kind, runs)
    ends = pl.Series("end", [run.keys[NUM_ROUNDS] for run in runs], pl.Int32)
    return table.filter(table["round"] <= ends.gather(table["run"]))


def _describe_incomplete(folder: RunFolder, runs: Sequence[StoredRun], ends: Mapping[int, int]) -> list[str]:
    """A sentence on a folder some of whose runs are not complete; `ends` are the last rounds of those with rows."""
    complete = [run.is_complete and ends.get(position) == run.keys[NUM_ROUNDS] for position, run in enumerate(runs)]
    if all(complete):
        return []
    num_missing = len(runs) - len(ends)
    num_partial = len(runs) - num_missing - sum(complete)
    are = lambda number: "is" if number == 1 else "are"
    parts = [f"{sum(complete)} of {count(len(runs), 'run')} {are(len(runs))} complete"]
    parts += [f"{num_partial} {are(num_partial)} shown up to the last evaluation"] if num_partial else []
    parts += [f"{num_missing} without rows {are(num_missing)} left out"] if num_missing else []
    return [f"Incomplete: of {folder.path}, {', '.join(parts)}."]


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
    runs: Sequence[Run], different: Sequence[Run], num_clients: Sequence[int | None], table: pl.DataFrame
) -> tuple[list[Setting], pl.DataFrame]:
    """The settings, and the rows with columns "setting" and "evaluation", as far as all runs of a setting go."""
    first = table.group_by("run", maintain_order=True).agg(col("lam", "fraction").first()).sort("run")
    settings = settings_of(runs, different, num_clients, first["lam"].to_list(), first["fraction"].to_list())
    positions = {run: setting.position for setting in settings for run in setting.runs}
    of_run = col("run").replace_strict(positions, return_dtype=pl.Int32).alias("setting")
    table = table.with_columns(of_run, pl.int_range(pl.len()).over("run").alias("evaluation"))
    last = col("evaluation").max().over("run").min().over("setting")
    table = table.filter(col("evaluation") <= last)
    rounds = dict(table.group_by("setting").agg(col("round").unique(maintain_order=True)).iter_rows())
    return [replace(setting, rounds=tuple(rounds[setting.position])) for setting in settings], table


def settings_of(
    runs: Sequence[Run],
    different: Sequence[Run],
    num_clients: Sequence[int | None],
    lams: Sequence[float | None],
    fractions: Sequence[float],
) -> list[Setting]:
    """The settings of the runs, without rounds; `different` are the runs' keys that not all of them share."""
    members: dict[SettingKey, list[int]] = {}
    # The share of corrupted clients and the number of all in the first split; splits may differ if clients are listed.
    sizes: dict[tuple[Any, ...], tuple[float, int]] = {}
    columns = zip(runs, swept_values(runs, different), num_clients, lams, fractions, strict=True)
    for run, (config, values, number, lam, fraction) in enumerate(columns):
        data = data_set(config)
        malicious = config["attack.clients"]
        corrupted = config["corruption.clients"], malicious, config["corruption.fraction"]
        data_sections = ("data", section_name(config["data.partition"]))
        swept_data = [value for value in values if section(value[0]) in data_sections]
        of_run = fraction, number or config["data.num_clients"]
        share, total = sizes.setdefault((data, *corrupted, *swept_data), of_run)
        malicious_share = len(malicious) / total if malicious else config["attack.fraction"]
        threat = config["corruption.kind"], share, config["attack.kind"], malicious_share
        key = data, config["server.aggregator"], *threat, lam, values
        members.setdefault(key, []).append(run)
    draws = [(config["data.seed"], config["seed"]) for config in runs]
    roles = setting_keys(runs)
    return [
        Setting(*key, position, tuple(map(draws.__getitem__, of)), tuple(of), (), roles)
        for position, (key, of) in enumerate(members.items())
    ]


def stored_settings(stored: Sequence[StoredRun]) -> list[Setting]:
    """The settings of the runs of a folder, whether they have rows or not, without rounds."""
    runs = with_labels([configuration(run.keys) for run in stored])
    values = [run.get(lam_key(run)) for run in runs]
    lams = [float(value) if isinstance(value, int | float) else None for value in values]
    num_clients = [run.num_clients for run in stored]
    shares = [
        len(run["corruption.clients"]) / (number or run["data.num_clients"]) or run["corruption.fraction"]
        for run, number in zip(runs, num_clients, strict=True)
    ]
    return settings_of(runs, split_common(runs)[1], num_clients, lams, shares)


def _with_keys(table: pl.DataFrame, runs: Sequence[Run], different: Sequence[Run]) -> pl.DataFrame:
    """The table with a column for each key, and the name of the data set; null where a key does not apply."""
    varying = set(chain.from_iterable(different))
    keys = [key for key in dict.fromkeys(chain.from_iterable(runs)) if key not in table.columns]
    columns = [key_column(key, [run.get(key) for run in runs]) for key in keys if key in varying]
    of_runs = pl.DataFrame([pl.Series("data", list(map(data_set, runs))), *columns])
    constants = [pl.lit(key_column(key, [runs[0][key]])[0]).alias(key) for key in keys if key not in varying]
    return table.hstack(of_runs[table["run"]]).with_columns(constants)
