"""Run folders as one table."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from polars import col

from fedsim.config.roles import run_id
from fedsim.errors import ConfigError, RunFolderError
from fedsim.report.final import LAST, Final, parse
from fedsim.report.keys import Run, configuration, data_set, identities, planned, with_labels
from fedsim.report.mixtures import check_inputs
from fedsim.report.names import count
from fedsim.report.results import Results
from fedsim.report.settings import settings_of
from fedsim.runs.folder import RunFolder, StoredRun, read_rows
from fedsim.runs.groups import ROUNDS as NUM_ROUNDS
from fedsim.runs.sweep import key_column

if TYPE_CHECKING:
    from fedsim.config.experiment import Experiment

MAY_STOP = ("server.patience", "server.stop_diverged")


def load(*paths: RunFolder | Path | str, final: Final | str = LAST, config: "Experiment | None" = None) -> Results:
    """Run folders as if they were one; a run that several have is read from the first of those with most rounds of it.

    `final` is "last", "mean:N" or "best". With `config`, only the runs of that experiment, in its order and with its
    rounds. Of incomplete runs, those that have rows, those of a setting up to the last evaluation that all of them
    have. Raises `RunFolderError` if a folder is broken, or has no rows, or no runs of `config`; `ConfigError` if a run
    lacks the `final` evaluations, or folders have different data or plug-ins under one name.
    """
    if not paths:
        raise ConfigError("load: must get a run folder, got none")
    folders = tuple(path if isinstance(path, RunFolder) else RunFolder(Path(path)) for path in paths)
    return load_runs(folders, list(map(stored_runs, folders)), parse(final), config)


def stored_runs(folder: RunFolder) -> list[StoredRun]:
    """The runs of a folder with all keys, whose values can be compared."""
    return [run._replace(keys=configuration(run.keys)) for run in folder.runs()]


def load_runs(
    folders: Sequence[RunFolder],
    runs_of: Sequence[Sequence[StoredRun]],
    final: Final = LAST,
    config: "Experiment | None" = None,
) -> Results:
    """As `load`, from the `stored_runs` of each folder."""
    notes: list[str] = []
    if config is not None:
        runs_of, notes = _select(folders, runs_of, config)
    notes += check_inputs(folders, runs_of)
    every = [(folder, run) for folder, runs in zip(folders, runs_of, strict=True) for run in runs]
    stored = [run for _, run in every]
    table, stopped = _hold_stopped(read_rows("rounds", stored), stored)
    rows = dict(table.group_by("run", maintain_order=True).agg(col("round").max()).iter_rows())
    ends = [rows.get(position, -1) for position in range(len(every))]  # the last round of each run
    rest = iter(ends)
    for folder, of_folder in zip(folders, runs_of, strict=True):
        last = list(islice(rest, len(of_folder)))
        if config is None and max(last, default=-1) < 0:
            raise RunFolderError(f"{folder.path}: has no rows yet; run its configuration again to resume")
        notes += _describe_incomplete(folder, of_folder, last)
    if not rows:
        raise RunFolderError(f"{folders[0].path}: has no rows of these runs yet; run their configuration to resume")
    for group in dict.fromkeys(run.group for run in stored):
        for kind in ("clients", "info"):  # which are read later, or never
            group.check(kind)
    longest = _longest(stored, ends) if len(folders) > 1 else list(rows)
    notes += _describe_stopped([stopped[position] for position in longest if position in stopped])
    new = {position: number for number, position in enumerate(longest)}
    numbers = col("run").replace_strict(new, default=None, return_dtype=pl.Int32)
    table = table.with_columns(numbers, pl.selectors.float().fill_nan(None)).drop_nulls("run").sort("run", "round")
    runs = with_labels([stored[position].keys for position in longest])
    settings = settings_of(runs, [stored[position].num_clients for position in longest])
    positions = {run: setting.position for setting in settings for run in setting.runs}
    setting = col("run").replace_strict(positions, return_dtype=pl.Int32).alias("setting")
    table = table.with_columns(setting, pl.int_range(pl.len()).over("run").alias("evaluation"))
    table = table.filter(col("evaluation") <= col("evaluation").max().over("run").min().over("setting"))
    _check_final(final, table)
    rounds = dict(table.group_by("setting").agg(col("round").unique(maintain_order=True)).iter_rows())
    return Results(
        tuple(folders),
        tuple(runs),
        tuple(every[position] for position in longest),
        [replace(setting, rounds=tuple(rounds[setting.position])) for setting in settings],
        _with_keys(table, runs),
        final,
        num_repeated=len(rows) - len(runs),
        notes=tuple(notes),
        config=config,
    )


def _select(
    folders: Sequence[RunFolder], runs_of: Sequence[Sequence[StoredRun]], config: "Experiment"
) -> tuple[list[list[StoredRun]], list[str]]:
    """The runs of the experiment that each folder has, up to its rounds; a sentence if some are in none."""
    wanted = {run_id(run): run.server.num_rounds for run in planned(config, chain.from_iterable(runs_of))}
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


def _hold_stopped(table: pl.DataFrame, runs: Sequence[StoredRun]) -> tuple[pl.DataFrame, dict[int, int]]:
    """With the last row of each run that was stopped repeated in its later rounds, as its model stays the same.

    Also the rounds after which they stopped, by position.
    """
    may_stop = [position for position, run in enumerate(runs) if any(run.keys.get(key) for key in MAY_STOP)]
    if not may_stop:
        return table, {}
    last = table.filter(col("run").is_in(may_stop)).group_by("run").last()
    of_groups = {runs[position].group for position in may_stop}
    reached = {group: max(group.last_round(), group.read_completion().rounds) for group in of_groups}
    later: list[tuple[int, int]] = []
    stopped = {}
    for position, end in last.select("run", "round").iter_rows():
        run = runs[position]
        every, until = run.keys["server.eval_every"], min(run.keys[NUM_ROUNDS], reached[run.group])
        if end < until:  # other runs of the group went on
            stopped[position] = end
            later += [(position, round_) for round_ in (*range(end + every, until, every), until)]
    pairs = pl.DataFrame(later, {name: table.schema[name] for name in ("run", "round")}, orient="row")
    held = last.drop("round").join(pairs, on="run").with_columns(byzantine_excess=None).select(table.columns)
    return pl.concat([table, held]).sort("run", "round"), stopped


def _describe_stopped(ends: Sequence[int]) -> list[str]:
    """A sentence on the runs that were stopped after these rounds."""
    if not ends:
        return []
    when = f"{min(ends)} to {max(ends)}" if len(set(ends)) > 1 else ends[0]
    runs = count(len(ends), "run")
    return [f"Stopped early, after {when} rounds: {runs}, whose last numbers count for later rounds."]


def _longest(runs: Sequence[StoredRun], ends: Sequence[int]) -> list[int]:
    """The positions of the different runs that have rows; of one in several folders, the first with most rounds."""
    longest: dict[Hashable, int] = {}
    for position, identity in enumerate(identities(runs)):
        if ends[position] >= 0 and ends[position] > ends[longest.setdefault(identity, position)]:
            longest[identity] = position
    return list(longest.values())


def _describe_incomplete(folder: RunFolder, runs: Sequence[StoredRun], ends: Sequence[int]) -> list[str]:
    """A sentence on a folder some of whose runs are not complete; `ends` are their last rounds, -1 without rows."""
    num_complete = sum(run.is_complete and end == run.keys[NUM_ROUNDS] for run, end in zip(runs, ends, strict=True))
    num_missing = ends.count(-1)
    num_partial = len(runs) - num_missing - num_complete
    are = lambda number: "is" if number == 1 else "are"
    parts = [f"{num_complete} of {count(len(runs), 'run')} {are(len(runs))} complete"]
    shown = "settings are shown up to the last evaluation that all their runs have"
    parts += [f"{num_partial} {are(num_partial)} not: {shown}"] if num_partial else []
    parts += [f"{num_missing} without rows {are(num_missing)} left out"] if num_missing else []
    return [f"Incomplete: of {folder.path}, {', '.join(parts)}."] if num_complete < len(runs) else []


def _check_final(final: Final, table: pl.DataFrame) -> None:
    """Raises `ConfigError` if a setting lacks the evaluations that are to be shown."""
    has_none = (col("validation_loss").is_null() & col("validation_accuracy").is_null()).all().alias("has_none")
    of_settings = table.group_by("setting").agg(col("evaluation").max(), has_none)
    number = min(of_settings["evaluation"])  # without the initial model
    if final.kind == "mean" and final.number > number:
        allowed = f"at most mean:{number}, the evaluations of a run" if number else "last, as no round is evaluated"
        raise ConfigError(f"--final: must be {allowed}, got {final}")
    if final.kind == "best" and of_settings["has_none"].any():
        raise ConfigError("--final: best needs validation data; run with data.validation_fraction = 0.1")


def _with_keys(table: pl.DataFrame, runs: Sequence[Run]) -> pl.DataFrame:
    """The table with a column for each key, and the name of the data set; null where a key does not apply."""
    keys = [key for key in dict.fromkeys(chain.from_iterable(runs)) if key not in table.columns]
    columns = [key_column(key, [run.get(key) for run in runs]) for key in keys]
    varying = [column for column in columns if column.n_unique() > 1]
    constants = [pl.lit(column[0]).alias(column.name) for column in columns if column.n_unique() == 1]
    of_runs = pl.DataFrame([pl.Series("data", list(map(data_set, runs))), *varying])
    return table.hstack(of_runs[table["run"]]).with_columns(constants)
