"""The folder of a group: the index of its runs, and all that is theirs."""

import io
import json
import shutil
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from fedsim.config.sections import ADDED_RECORDS, CLIENT_RECORDS
from fedsim.errors import LOAD_ERRORS, RunFolderError, reason
from fedsim.runs.files import read_bytes, write_atomically
from fedsim.runs.locks import Lock
from fedsim.runs.schemas import SCHEMAS
from fedsim.runs.sweep import split_common

INDEX = "group.json"
ROUNDS = "server.num_rounds"
DAMAGED = (msgspec.DecodeError, ValueError)
REMEDY = "delete its folder and run again, which computes its runs again"


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a group before its first row. In the file, `common` are the keys that all runs share."""

    created: float
    """Seconds since the epoch, equal for the groups that one command has added."""
    runs: list[dict[str, Any]]
    """A row a run: "id", "position" in its configuration, "num_clients", and all keys."""
    layout: dict[str, Any]
    """The widths and devices, on which the last bits of rows depend."""
    environments: list[dict[str, Any]]
    """Versions, device and digests of fedsim's source, of each computer that has worked on it."""
    data: str = ""
    """Digest of the data set."""
    files: dict[str, str] = {}
    """Digests of the files of plug-ins, by their names."""
    client_names: tuple[str, ...] = ()
    """Of its clients, if they have names."""
    common: dict[str, Any] = {}
    checksum: int = 0
    """CRC-32 of all else, in the file."""


def _checksum(record: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode())


class Completion(msgspec.Struct, frozen=True):
    """What is known of a complete group."""

    rounds: int = -1
    """After which it was last complete; -1: it never was."""
    num_parts: int = 0
    """Files of rows."""
    seconds_compiling: float = 0.0
    """Of all its rounds, but for those before an interruption."""
    seconds_running: float = 0.0


def has_all_of(run: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the row of a run records all that another one does, except final states."""
    added = (key for name in ADDED_RECORDS if (key := f"record.{name}") in other)
    has_added = all(not other[key] or other[key] == run.get(key) for key in added)
    clients = [CLIENT_RECORDS.index(row.get("record.clients", "all")) for row in (run, other)]
    return has_added and clients[0] >= clients[1]


def has_more_than(run: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the row of a run records all that another one does, and more."""
    return has_all_of(run, other) and not has_all_of(other, run)


class RowFile(NamedTuple):
    """A file <first>-<last>-<tables>-<crc>-<table>.parquet of the rows between two checkpoints, which never changes."""

    first: int
    """The round of its first evaluation."""
    last: int
    """The round of its last one."""
    path: Path
    num_tables: int = 1
    """Tables with rows of these rounds; earlier versions wrote none."""
    checksum: int | None = None
    """Its CRC-32; None for versions that wrote checksums of pages."""


class GroupFolder:
    """The folder `path` of a group. Methods raise `RunFolderError` if a file is missing, broken or not writable."""

    remedy = "delete it and run again, which computes its runs again"
    """Where a file of rows is broken."""

    def __init__(self, path: Path) -> None:
        self.path, self.checkpoints, self.lock = path, path / "checkpoints", Lock(path / "lock")

    def exists(self) -> bool:
        """Whether the group was added, and not removed since."""
        return (self.path / INDEX).exists()

    @cached_property
    def record(self) -> Record:
        """What was known of the group before its first row."""
        path = self.path / INDEX
        data = read_bytes(path, None, "the folder was moved or deleted, or its runs are computed again")
        try:
            record = msgspec.convert(json.loads(data), Record)  # msgspec's JSON has no infinite settings
        except DAMAGED as error:
            raise RunFolderError(f"{path}: broken: {error}; {REMEDY}") from None
        checksum, record = record.checksum, msgspec.structs.replace(record, checksum=0)
        if checksum != _checksum(msgspec.to_builtins(record)):
            raise RunFolderError(f"{path}: broken: it does not match its checksum; {REMEDY}")
        return msgspec.structs.replace(record, runs=[record.common | run for run in record.runs], common={})

    def write_record(self, record: Record) -> None:
        """Writes the index: at first, and for more rounds."""
        common, runs = split_common(record.runs)
        written = msgspec.to_builtins(msgspec.structs.replace(record, common=common, runs=runs))
        text = json.dumps(written | {"checksum": _checksum(written)}, indent=1)
        write_atomically(self.path / INDEX, lambda path: path.write_text(text, encoding="utf-8"))
        self.__dict__["record"] = record

    @property
    def num_rounds(self) -> int:
        """The rounds that its runs are to have."""
        return int(self.record.runs[0][ROUNDS])

    # Progress

    def mark_complete(self, rounds: int, seconds: Mapping[str, float], resumed: bool, keep_states: bool) -> None:
        """Marks the group as complete after `rounds`; deletes its checkpoints unless `keep_states`.

        If it has `resumed`, `seconds` are those since then.
        """
        before = self.read_completion() if resumed else Completion()
        total = {name: getattr(before, name) + value for name, value in seconds.items()}
        done = msgspec.json.encode(Completion(rounds, self._num_files(rounds), **total)) + b"\n"
        write_atomically(self.path / "done.json", lambda path: path.write_bytes(done))
        if not keep_states:
            shutil.rmtree(self.checkpoints, ignore_errors=True)

    def read_completion(self) -> Completion:
        """What is known since the group was complete, if no rows or models are missing; it may get more rounds."""
        try:
            completion = msgspec.json.decode((self.path / "done.json").read_bytes(), type=Completion)
        except (OSError, *DAMAGED):
            return Completion()
        is_whole = completion.num_parts == self._num_files(completion.rounds)
        return completion if is_whole and not any(map(self._lacks_arrays, self.record.runs)) else Completion()

    def is_complete(self) -> bool:
        """Whether the group has all its rounds."""
        return self.read_completion().rounds >= self.num_rounds

    def _lacks_arrays(self, run: dict[str, Any]) -> bool:
        return any(
            run.get(f"record.{kind}") and not self._arrays(kind, run["id"]).exists() for kind in ("models", "data")
        )

    def remove(self) -> None:
        """Deletes the group, its index first; of a link, the link alone."""
        if self.path.is_symlink():
            return self.path.unlink()
        (self.path / INDEX).unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)

    # Rows

    def write_rows(self, first: int, last: int, tables: Mapping[str, pl.DataFrame]) -> None:
        """Writes the rows of the evaluations from round `first` to `last`.

        Raises `RunFolderError` if the group has been deleted meanwhile: what is written would not be found again.
        """
        if not (self.path / INDEX).exists():
            raise RunFolderError(f"{self.path}: {INDEX} is missing: the folder was moved or deleted during the run")
        for kind, table in tables.items():
            buffer = io.BytesIO()  # a full disk is then an `OSError`
            table.write_parquet(buffer)
            data = buffer.getvalue()
            name = f"{first:08}-{last:08}-{len(tables)}-{zlib.crc32(data):08x}-{kind}.parquet"
            write_atomically(self.path / name, partial(Path.write_bytes, data=data))

    def spans(self) -> list[tuple[int, int]]:
        """The first and last rounds of rows of which all tables are written, in order."""
        files = list(self._files())
        number = Counter(file[:2] for file in files)
        return sorted({file[:2] for file in files if number[file[:2]] >= file.num_tables})

    def last_round(self) -> int:
        """The last round of which rows are written; -1: none are."""
        return max((last for _, last in self.spans()), default=-1)

    def delete_rows(self, after: int = -1) -> None:
        """Deletes rows of rounds after `after`, and incomplete files of a killed process."""
        for file in self._files():
            if file.last > after:
                file.path.unlink()
        for path in self.path.glob(".*.parquet.*"):
            path.unlink()

    def read(self, kind: str, positions: Mapping[str, int] | None = None) -> pl.DataFrame:
        """The rows of "rounds", "clients" or "info" of the runs with these ids, "run" being their `positions`.

        By default those of all runs, with their positions in the index. Clients with names have the column
        "client_name", too.
        """
        if not self.path.exists():
            raise RunFolderError(f"{self.path}: its runs were computed again since they were loaded; load them again")
        ids = [run["id"] for run in self.record.runs]
        numbers = pl.Series(range(len(ids)) if positions is None else map(positions.get, ids), dtype=pl.Int32)
        schema = SCHEMAS[kind]
        stored = pl.Schema(schema | {"run": pl.Enum(ids)})
        tables = [self._read_table(file, stored) for file in sorted(self._files(kind))]
        run = pl.lit(numbers).gather(pl.col("run").to_physical())
        rows = pl.concat([pl.DataFrame(schema=schema), *(t.with_columns(run=run) for t in tables)]).drop_nulls("run")
        if kind != "clients" or not self.record.client_names:
            return rows
        return rows.with_columns(client_name=pl.Series(self.record.client_names).gather(rows["client_id"]))

    def _read_table(self, file: RowFile, schema: pl.Schema) -> pl.DataFrame:
        """The columns of `schema`, null where the file has none."""
        data = read_bytes(file.path, file.checksum, self.remedy)
        columns = pl.DataFrame(schema=dict.fromkeys(schema, pl.Null) | {"run": pl.String})  # numbers in fedsim 0.3
        try:
            table = pl.concat([columns, pl.read_parquet(data)], how="diagonal_relaxed")
            return table.select(schema.names()).cast(schema)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise RunFolderError(f"{file.path}: broken: {reason(error)}; {self.remedy}") from None

    def check(self, kind: str) -> None:
        """Raises `RunFolderError` if rows of this kind have changed since they were written."""
        for file in self._files(kind):
            read_bytes(file.path, file.checksum, self.remedy)

    def _files(self, kind: str = "*") -> Iterator[RowFile]:
        for path in self.path.glob(f"[0-9]*-{kind}.parquet"):
            first, last, *numbers, _ = path.name.split("-")
            num_tables = int(numbers[0]) if len(numbers) == 2 else 1
            yield RowFile(int(first), int(last), path, num_tables, int(numbers[-1], 16) if numbers else None)

    def _num_files(self, rounds: int) -> int:
        """The number of files up to this round."""
        return sum(file.last <= rounds for file in self._files())

    # Models and data

    def write_arrays(self, kind: str, run: str, arrays: dict[str, Any]) -> None:
        """Writes the "models" or "data" arrays of the run with this id as an .npz file."""

        def write(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.savez(file, **arrays)

        write_atomically(self._arrays(kind, run), write)

    def read_arrays(self, kind: str, run: str) -> dict[str, np.ndarray]:
        """The "models" or "data" arrays of the run with this id, by name."""
        path = self._arrays(kind, run)
        try:
            with np.load(path) as file:
                return dict(file)
        except LOAD_ERRORS as error:
            is_recorded = any(row["id"] == run and row.get(f"record.{kind}") for row in self.record.runs)
            remedy = "run its configuration again to resume" if is_recorded else f"run with record.{kind} = true"
            raise RunFolderError(f"{path}: cannot be read: {reason(error)}; {remedy}") from None

    def _arrays(self, kind: str, run: str) -> Path:
        return self.path / kind / f"{run}.npz"
