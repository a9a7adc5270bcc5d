"""The folder of a group: the index of its runs, and all that is theirs."""

import shutil
import zlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl

from fedsim.errors import RunFolderError, describe_os_error
from fedsim.runs.files import has_checkpoint, read_arrays, write_arrays, write_atomically
from fedsim.runs.locks import describe_holder, is_locked, lock
from fedsim.runs.parts import Parts
from fedsim.runs.schemas import SCHEMAS
from fedsim.runs.sweep import split_common

if TYPE_CHECKING:
    from fedsim.core.types import Variables

INDEX = "group.json"
ROUNDS = "server.num_rounds"
DAMAGED = (msgspec.DecodeError, UnicodeDecodeError)
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
    common: dict[str, Any] = {}
    checksum: int = 0
    """CRC-32 of all else, in the file."""


class Completion(msgspec.Struct, frozen=True):
    """What is known of a complete group."""

    rounds: int
    num_parts: int
    """Files of rows."""
    seconds_compiling: float
    seconds_running: float
    resumed: bool = False
    """Whether its seconds lack those before a checkpoint from which it resumed."""


class GroupFolder:
    """The folder `path` of a group. Methods raise `RunFolderError` if a file is missing, broken or not writable."""

    def __init__(self, path: Path) -> None:
        self.path, self.parts = path, Parts(path)

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints."""
        return self.path / "checkpoints"

    def has_checkpoint(self) -> bool:
        """Whether there are states from which to resume."""
        return has_checkpoint(self.checkpoints)

    def exists(self) -> bool:
        """Whether the group was added, and not removed since."""
        return (self.path / INDEX).exists()

    @cached_property
    def record(self) -> Record:
        """What was known of the group before its first row."""
        path = self.path / INDEX
        try:
            record = msgspec.json.decode(path.read_bytes(), type=Record)
        except OSError as error:
            raise RunFolderError(f"{describe_os_error(error)}; use another path") from None
        except DAMAGED as error:
            raise RunFolderError(f"{path}: broken: {error}; {REMEDY}") from None
        checksum, record = record.checksum, msgspec.structs.replace(record, checksum=0)
        if checksum != zlib.crc32(msgspec.json.encode(record)):
            raise RunFolderError(f"{path}: broken: it does not match its checksum; {REMEDY}")
        return msgspec.structs.replace(record, runs=[record.common | run for run in record.runs], common={})

    def write_record(self, record: Record) -> None:
        """Writes the index: at first, and for more rounds."""
        common, runs = split_common(record.runs)
        written = msgspec.structs.replace(record, common=common, runs=runs)
        checksum = zlib.crc32(msgspec.json.encode(written))
        text = msgspec.json.encode(msgspec.structs.replace(written, checksum=checksum))
        self._write_text(INDEX, msgspec.json.format(text, indent=1).decode())
        self.__dict__["record"] = record

    @property
    def num_rounds(self) -> int:
        """The rounds that its runs are to have."""
        return int(self.record.runs[0][ROUNDS])

    # Progress

    def lock(self) -> AbstractContextManager[bool]:
        """Whether this process holds the lock of the group until the end of the block."""
        return lock(self._lock_file)

    def is_locked(self) -> bool:
        """Whether a process works on the group."""
        return is_locked(self._lock_file)

    def describe_holder(self) -> str:
        """Which process works on the group, in words."""
        return describe_holder(self._lock_file)

    @property
    def _lock_file(self) -> Path:
        return self.path / "lock"

    def mark_complete(self, rounds: int, seconds: Mapping[str, float], resumed: bool, keep_states: bool) -> None:
        """Marks the group as complete after `rounds`; deletes its checkpoints unless `keep_states`."""
        completion = Completion(rounds, self.parts.count(rounds), **seconds, resumed=resumed)
        self._write_text("done.json", msgspec.json.encode(completion).decode() + "\n")
        if not keep_states:
            shutil.rmtree(self.checkpoints, ignore_errors=True)

    def read_completion(self) -> Completion | None:
        """What is known of a complete group, also if it is to get more rounds; None if rows or models are missing."""
        try:
            completion = msgspec.json.decode((self.path / "done.json").read_bytes(), type=Completion)
        except (OSError, *DAMAGED):
            return None
        is_whole = completion.num_parts == self.parts.count(completion.rounds)
        return completion if is_whole and not any(map(self._lacks_arrays, self.record.runs)) else None

    def rounds_complete(self) -> int:
        """The rounds after which the group was last complete; -1: it never was."""
        completion = self.read_completion()
        return -1 if completion is None else completion.rounds

    def is_complete(self) -> bool:
        """Whether the group has all its rounds."""
        return self.rounds_complete() >= self.num_rounds

    def _lacks_arrays(self, run: dict[str, Any]) -> bool:
        return any(
            run.get(f"record.{kind}") and not self._arrays(kind, run["id"]).exists() for kind in ("models", "data")
        )

    def rounds_completed(self) -> int:
        """The last round of which rows are written; -1: none are."""
        return max((span.last for span in self.parts.spans()), default=-1)

    def remove(self) -> None:
        """Deletes the group, its index first."""
        (self.path / INDEX).unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)

    # Rows, models and data

    def read(self, kind: str) -> pl.DataFrame:
        """The rows of "rounds", "clients" or "info", with the positions of runs in the index in place of their ids."""
        schema, ids = SCHEMAS[kind], pl.Enum([run["id"] for run in self.record.runs])
        position = pl.col("run").cast(ids).to_physical().cast(pl.Int32)
        columns = [position, *(name for name in schema if name != "run")]
        tables = [table.select(columns).select(schema.names()) for table in self.parts.read(kind)]
        return pl.concat([pl.DataFrame(schema=schema), *tables])

    def check(self, kind: str) -> None:
        """Raises `RunFolderError` if rows of this kind have changed since they were written."""
        self.parts.check(kind)

    def write_model(self, run: str, variables: "Variables") -> None:
        """Writes the model of the run with this id, arrays by path such as "Dense_0/kernel" or "statistics/..."."""
        import jax

        tree = {**_named(variables.params), **({"statistics": variables.statistics} if variables.statistics else {})}
        flat, _ = jax.tree.flatten_with_path(tree)
        arrays = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}
        write_arrays(self._arrays("models", run), arrays)

    def write_data(self, run: str, arrays: dict[str, np.ndarray]) -> None:
        """Writes the training data of the run with this id, the fields of `ClientData`."""
        write_arrays(self._arrays("data", run), arrays)

    def read_arrays(self, kind: str, run: str) -> dict[str, np.ndarray]:
        """The "models" or "data" arrays of the run with this id, by name."""
        return read_arrays(self._arrays(kind, run), f"run with record.{kind} = true")

    def _arrays(self, kind: str, run: str) -> Path:
        return self.path / kind / f"{run}.npz"

    def _write_text(self, name: str, text: str) -> None:
        write_atomically(self.path / name, lambda path: path.write_text(text, encoding="utf-8"))


def _named(params: Any) -> dict[str, Any]:
    """A model's parameters by name; those of a plug-in need not be a dict."""
    return dict(params) if isinstance(params, dict) else {"params": params}
