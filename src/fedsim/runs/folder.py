"""Run folders: stores of runs, each under its id.

configs/<name>-<digest>.toml    each configuration that was run into the folder, with every key resolved
groups/<rule>-<random>/         a group of runs that are computed together (`fedsim.runs.groups`):
    group.json                  the index: id and keys of each run; layout, versions, device, digests of data, plug-ins
    <first>-<last>-<tables>-<crc>-<table>.parquet    rows between two checkpoints, of rounds, clients and info
    done.json                   rounds and seconds, once it is complete
    checkpoints/                states, until it is complete; with `record.final_states` also later
    models/, data/              <id>.npz: a run's model, with `record.models`; its training data, with `record.data`
    lock, lock.json             lock file of the process that works on it, and who that is
tensorboard/, slurm/            on request
summary.csv, figures/ ...       the report; .report.json lists its files
"""

import json
import tomllib
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from fedsim.errors import RunFolderError, describe_os_error
from fedsim.runs import legacy
from fedsim.runs.files import check_config, write_atomically
from fedsim.runs.groups import DAMAGED, INDEX, ROUNDS, GroupFolder, Record, has_all_of, has_more_than
from fedsim.runs.locks import Lock
from fedsim.runs.schemas import SCHEMAS

REPORT = ".report.json"  # the list of a report's files
REPORTED = (".csv", ".md", ".tex", ".png", ".pdf")  # their suffixes
FACTS = ("id", "position", "num_clients")  # of a row of the index, besides the run's keys


class StoredRun(NamedTuple):
    """A run of a folder."""

    id: str
    keys: dict[str, Any]
    """Its configuration, by dotted key."""
    num_clients: int | None
    """None in older folders."""
    group: GroupFolder
    """The group that has its rows."""
    is_complete: bool
    """Whether all its rounds are there."""
    latest: GroupFolder
    """The group that is to have it: `group`, or an incomplete one that was added later."""

    @property
    def num_rounds(self) -> int:
        """The rounds that it is to have."""
        return int(self.keys[ROUNDS])

    def as_planned(self) -> "StoredRun":
        """The run in the group that is to have it, if that is not complete."""
        if self.latest is self.group:
            return self
        return self._replace(group=self.latest, is_complete=False, keys=self.keys | {ROUNDS: self.latest.num_rounds})

    def read_model(self) -> dict[str, np.ndarray]:
        """Its final model, arrays by path; needs `record.models`."""
        return self.group.read_arrays("models", self.id)

    def read_data(self) -> dict[str, np.ndarray]:
        """Its training data, the fields of `ClientData`; needs `record.data`."""
        return self.group.read_arrays("data", self.id)


class RunFolder:
    """A folder of runs. Methods raise `RunFolderError` if a file is missing, broken or not writable."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, Lock(path / "lock")  # held while groups are added or removed

    def is_occupied(self) -> bool:
        """Whether the folder contains anything except locks and logs of jobs."""
        is_ours = lambda name: name in ("lock", "lock.json", "slurm") or name.startswith(".lock.json.")
        return self.path.exists() and (
            not self.path.is_dir() or any(not is_ours(path.name) for path in self.path.iterdir())
        )

    def has_runs(self) -> bool:
        """Whether this is a run folder."""
        return (self.path / "groups").is_dir() or legacy.is_run_folder(self.path)

    def check(self) -> None:
        """Raises `RunFolderError` if this is no run folder."""
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"{self.path}: must be a run folder, got a file")
        if not self.path.exists():
            raise RunFolderError(f"{self.path}: must be a run folder, but does not exist")
        if not self.has_runs():
            inside = sorted(path for path in self.path.iterdir() if RunFolder(path).has_runs())
            found = f"; it has run folders in it: {', '.join(path.name for path in inside[:3])}"
            remedy = found if inside else "; new runs need a new or empty folder"
            raise RunFolderError(f"{self.path}: must be a run folder, but has no runs{remedy}")

    def make_directory(self) -> None:
        """Creates the folder if it does not exist."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be created: {error.strerror}; choose another --out") from None

    # Groups and runs

    def groups(self) -> list[GroupFolder]:
        """Its groups, in the order in which they were added."""
        self.check()
        try:
            paths = [path.parent for path in (self.path / "groups").glob(f"*/{INDEX}")]
        except OSError as error:
            raise RunFolderError(f"{describe_os_error(error)}; use another path") from None
        groups = [*legacy.groups(self.path), *map(GroupFolder, paths)]
        first = lambda group: min(run["position"] for run in group.record.runs)
        return sorted(groups, key=lambda group: (group.record.created, first(group), group.path.name))

    def add_group(self, name: str, record: Record) -> GroupFolder:
        """Adds a group whose folder's name starts with `name`."""
        group = self.group(f"{name}-{uuid.uuid4().hex[:8]}")
        group.write_record(record)
        return group

    def group(self, name: str) -> GroupFolder:
        """The group whose folder has this name."""
        return GroupFolder(self.path / "groups" / name)

    def remove_superseded(self) -> None:
        """Deletes groups whose runs later ones all have, with all that they record, unless a process works on them."""
        newer: dict[str, list[dict[str, Any]]] = {}  # the rows of each run in later groups that are complete
        is_newer = lambda new, run: new[ROUNDS] >= run[ROUNDS] and has_all_of(new, run)
        for group in reversed(self.groups()):
            if all(any(is_newer(new, run) for new in newer.get(run["id"], ())) for run in group.record.runs):
                with group.lock.hold() as is_ours:
                    if is_ours:
                        group.remove()
            elif group.is_complete():
                for run in group.record.runs:
                    newer.setdefault(run["id"], []).append(run)

    def runs(self) -> list[StoredRun]:
        """Its runs in the order in which they were added; of a run that several groups have, the longest complete one.

        Of equally long ones, the latest, unless it records less. If none is complete, the latest that has rows.
        """
        runs: dict[str, StoredRun] = {}
        order: dict[str, tuple[float, int]] = {}
        for group in self.groups():
            is_complete = group.is_complete()
            has_rows = is_complete or group.last_round() >= 0
            for run in group.record.runs:
                known = runs.get(run["id"])
                order.setdefault(run["id"], (group.record.created, run["position"]))
                is_longest = is_complete and known is not None and run[ROUNDS] >= known.num_rounds
                if known is not None and known.num_rounds == run[ROUNDS] and has_more_than(known.keys, run):
                    is_longest = False
                if known is None or (is_longest if known.is_complete else has_rows):
                    keys = {key: value for key, value in run.items() if key not in FACTS}
                    runs[run["id"]] = StoredRun(run["id"], keys, run["num_clients"], group, is_complete, group)
                elif not is_complete:
                    runs[run["id"]] = known._replace(latest=group)
        return sorted(runs.values(), key=lambda run: order[run.id])

    def read(self, kind: str, runs: Sequence[StoredRun] | None = None) -> pl.DataFrame:
        """As `read_rows`, by default of all its runs."""
        return read_rows(kind, self.runs() if runs is None else runs)

    # Configurations, texts and figures

    def read_configs(self) -> dict[Path, dict[str, Any]]:
        """The configurations that were run into the folder: file and tables, the latest first."""
        paths = sorted((self.path / "configs").glob("*.toml"), key=lambda path: path.stat().st_mtime, reverse=True)
        configs = {}
        for path in paths:
            try:
                configs[path] = check_config(tomllib.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError) as error:
                raise RunFolderError(f"{path}: broken: {error}; delete it") from None
        return configs | legacy.configs(self.path)

    def start_report(self, names: Sequence[str], kept: tuple[str, ...] = ()) -> None:
        """Lists the files of a report that is to be written, and deletes those that only an earlier report had.

        Those whose names begin as one of `kept` stay. Raises `RunFolderError` if a file is of no report, unless this is
        a run folder.
        """
        try:
            listed = msgspec.json.decode((self.path / REPORT).read_bytes(), type=list[str])
        except (OSError, *DAMAGED):
            listed = []
        foreign = (self.path / name for name in names if name not in listed and not self.has_runs())
        if path := next(filter(Path.exists, foreign), None):
            raise RunFolderError(f"{path}: is there, but of no earlier report; move it, or choose another --out")
        after = {*names, *(name for name in listed if name.startswith(kept))}
        self.write_text(REPORT, json.dumps(sorted(after)))
        for name in map(Path, {*listed} - after):
            if name.suffix in REPORTED and str(name.parent) in (".", "figures"):  # whatever is listed
                (self.path / name).unlink(missing_ok=True)

    def write_text(self, name: str, text: str) -> None:
        """Writes the file `name`."""
        write_atomically(self.path / name, lambda path: path.write_text(text, encoding="utf-8"))

    def write_figure(self, name: str, figure: Any) -> None:
        """Writes a matplotlib figure as figures/<name>.png and, without a date, figures/<name>.pdf."""
        figures = self.path / "figures"
        write_atomically(figures / f"{name}.png", lambda path: figure.savefig(path, format="png"))
        figure.set_layout_engine("none")  # laid out once; the positions are shares of the figure
        dateless = {"CreationDate": None}
        write_atomically(figures / f"{name}.pdf", lambda path: figure.savefig(path, format="pdf", metadata=dateless))


def read_rows(kind: str, runs: Sequence[StoredRun]) -> pl.DataFrame:
    """The rows of "rounds", "clients" or "info" of `runs`, up to their last rounds; "run" is the position among these.

    Clients of a group whose clients have names have the column "client_name", too.
    """
    positions: dict[GroupFolder, dict[str, int]] = {}
    for position, run in enumerate(runs):
        positions.setdefault(run.group, {})[run.id] = position
    tables = [pl.DataFrame(schema=SCHEMAS[kind]), *(group.read(kind, ids) for group, ids in positions.items())]
    keys = [name for name in ("run", "round", "client_id", "name") if name in SCHEMAS[kind]]
    table, ends = pl.concat(tables, how="diagonal"), pl.Series([run.num_rounds for run in runs], dtype=pl.Int32)
    return table.filter(table["round"] <= ends.gather(table["run"])).sort(keys)
