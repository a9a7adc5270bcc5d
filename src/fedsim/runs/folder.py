"""Run folders, which hold the results of an experiment.

config.toml       the experiment with every key resolved; running it gives the same results
manifest.json     status, plan (groups, widths), versions, device, seconds; written before the first row
parts/            a folder for each group: its rows between two checkpoints; written once, never changed
checkpoints/      states of incomplete groups; with `record.final_states` those of all groups
groups/           a file for each complete group
locks/            lock files of processes, and who holds them
log/              the rows as JSON lines, a file for each group, written while it runs
tensorboard/, slurm/   on request
models/           a model for each run, with `record.models`
data/             the training data of each run, with `record.data`
rounds.parquet    all parts joined: one row for each run and evaluated round
clients.parquet   one row for each run, round and client of its cohort
info.parquet      one row for each run, round and measurement of the rule
                  (all three also have a column for each swept key)
summary.csv       one row for each setting: mean and deviation over seeds (`fedsim report`)
figures/          figures (`fedsim report`)
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from fedsim.errors import RunFolderError
from fedsim.runs.files import (
    has_checkpoint,
    read_arrays,
    read_bytes,
    read_table,
    write_arrays,
    write_atomically,
    write_table,
)
from fedsim.runs.locks import describe_holder, is_locked, lock
from fedsim.runs.manifests import MANIFEST, format_manifest, read_manifest
from fedsim.runs.parts import Parts
from fedsim.runs.schemas import SCHEMAS
from fedsim.runs.sweep import append_swept_columns

_CSV_FILES = ("summary.csv", "paired.csv")
REPORT_FILES = (*_CSV_FILES, "table.md", "table.tex", "worst.md", "worst.tex", "claims.md")
"""What `fedsim report` may write besides the figures."""

if TYPE_CHECKING:
    from fedsim.core.types import Variables

SECONDS = ("seconds_compiling", "seconds_running")  # of a group, and their sums in the manifest
CHECKSUMS = "checksums"  # in the manifest: the CRC-32 of each joined table
RESUMED = "resumed"  # in the manifest: its seconds lack those before a checkpoint from which a group resumed
REMEDY = "delete it and run its config.toml again"  # where a joined table is broken


class RunFolder:
    """The folder of one experiment. Methods raise `RunFolderError` if a file is missing, broken or not writable."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # The folder as a whole

    def is_occupied(self) -> bool:
        """Whether the folder contains anything except locks, logs of jobs and a manifest that is being written."""
        is_temporary = lambda name: name in ("locks", "slurm") or name.startswith(".manifest.json.")
        return self.path.exists() and (
            not self.path.is_dir() or any(not is_temporary(path.name) for path in self.path.iterdir())
        )

    def make_directory(self) -> None:
        """Creates the folder if it does not exist."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be created: {error.strerror}; choose another --out") from None

    def create(self, manifest: dict[str, Any]) -> None:
        """Deletes all results and writes a new manifest. Completion files go first and the manifest comes last, so that
        an interruption leaves results of the old manifest, or none.
        """
        self.make_directory()
        for name in ("groups", "checkpoints", "parts", "models", "data", "log", "tensorboard"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        for pattern in ("*.parquet", *REPORT_FILES, "report.html", "figures/*.png", "figures/*.pdf"):
            for path in self.path.glob(pattern):
                path.unlink()
        self.write_manifest(manifest)

    def lock(self) -> AbstractContextManager[bool]:
        """Waits until no other process creates or completes the folder."""
        return lock(self.path / "locks" / "folder.lock", wait=True)

    def read_manifest(self) -> dict[str, Any]:
        """The manifest, each of its runs with all keys. Raises `RunFolderError` if there is none or it is broken."""
        return read_manifest(self.path)

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Writes the manifest."""
        self.write_text(MANIFEST, format_manifest(manifest))

    # Groups

    def lock_group(self, group: int) -> AbstractContextManager[bool]:
        """Whether this process holds the lock of `group` until the end of the block."""
        return lock(self._lock_file(group))

    def is_locked(self, group: int) -> bool:
        """Whether a process runs `group`."""
        return is_locked(self._lock_file(group))

    def describe_holder(self, group: int) -> str:
        """Which process holds the lock of `group`, in words."""
        return describe_holder(self._lock_file(group))

    def _lock_file(self, group: int) -> Path:
        return self.path / "locks" / f"{group:05}.lock"

    def checkpoints(self, group: int) -> Path:
        """The folder of a group's checkpoints."""
        return self.path / "checkpoints" / f"{group:05}"

    def has_checkpoint(self, group: int) -> bool:
        """Whether there are states from which to resume."""
        return has_checkpoint(self.checkpoints(group))

    def mark_finished(self, group: int, seconds: dict[str, float], keep_states: bool = False) -> None:
        """Marks a group as complete; deletes its checkpoints unless `keep_states`."""
        entry = seconds | {"num_parts": self.parts(group).count()}
        self.write_text(self._group_file(group), json.dumps(entry, indent=2) + "\n")
        if not keep_states:
            shutil.rmtree(self.checkpoints(group), ignore_errors=True)

    def reopen(self, group: int) -> None:
        """Marks a group as incomplete."""
        (self.path / self._group_file(group)).unlink(missing_ok=True)

    def _group_file(self, group: int) -> str:
        """The file that marks a group as complete."""
        return f"groups/{group:05}.json"

    def read_finished(self, group: int) -> dict[str, float] | None:
        """The seconds of a complete group; None if it is not complete, or parts of it are missing."""
        try:
            entry: dict[str, float] = json.loads((self.path / self._group_file(group)).read_text())
        except (OSError, ValueError):
            return None
        return entry if entry.get("num_parts") == self.parts(group).count() else None

    # Rows

    def parts(self, group: int) -> Parts:
        """The rows of a group."""
        return Parts(self.path / "parts" / f"{group:05}")

    def join_parts(self, runs: Sequence[Mapping[str, Any]] = ()) -> dict[str, int]:
        """Joins the parts into one table of each kind, ordered by run, round and client, with the swept keys.

        Returns their checksums, which the manifest of a complete folder has as `CHECKSUMS`.
        """
        join = lambda kind: append_swept_columns(self.read_parts(kind), runs)
        return {kind: write_table(self._table(kind), join(kind)) for kind in SCHEMAS}

    def _table(self, kind: str) -> Path:
        """The file of a joined table."""
        return self.path / f"{kind}.parquet"

    def read_parts(self, kind: str) -> pl.DataFrame:
        """The rows of "rounds", "clients" or "info" in parts, ordered."""
        schema, groups = SCHEMAS[kind], sorted((self.path / "parts").glob("[0-9]*"))
        tables = [table.select(schema.names()) for path in groups for table in Parts(path).read(kind)]
        keys = [name for name in ("run", "round", "client_id", "name") if name in schema]
        return pl.concat(tables or [pl.DataFrame(schema=schema)]).sort(keys)

    def has_joined_tables(self) -> bool:
        """Whether the joined tables exist."""
        return all(self._table(kind).exists() for kind in SCHEMAS)

    def read(self, kind: str) -> pl.DataFrame:
        """The joined rows of "rounds", "clients" or "info". Raises `RunFolderError` if they are missing or broken."""
        return read_table(self._table(kind), SCHEMAS[kind], self._checksum(kind), REMEDY)

    def check_table(self, kind: str) -> None:
        """Raises `RunFolderError` if a joined table has changed since the folder became complete."""
        if (checksum := self._checksum(kind)) is not None:
            read_bytes(self._table(kind), checksum, REMEDY)

    def _checksum(self, kind: str) -> int | None:
        """That of a joined table; None if the folder is not complete, or of a version without checksums."""
        manifest = self.read_manifest()
        checksums = manifest.get(CHECKSUMS)
        return checksums.get(kind) if manifest["status"] == "complete" and isinstance(checksums, dict) else None

    # Models, data, texts and figures

    def write_model(self, run: int, variables: "Variables") -> None:
        """Writes a run's model as models/<run>.npz, arrays by path such as "Dense_0/kernel" or "statistics/..."."""
        import jax

        tree = {**_named(variables.params), **({"statistics": variables.statistics} if variables.statistics else {})}
        flat, _ = jax.tree.flatten_with_path(tree)
        arrays = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}
        write_arrays(self.path / "models" / f"{run:05}.npz", arrays)

    def read_model(self, run: int) -> dict[str, np.ndarray]:
        """The arrays that `write_model` wrote, by path. Raises `RunFolderError` if there are none."""
        return read_arrays(self.path / "models" / f"{run:05}.npz", "run with record.models = true")

    def write_data(self, run: int, arrays: dict[str, np.ndarray]) -> None:
        """Writes the training data of a run, the fields of `ClientData`, as data/<run>.npz."""
        write_arrays(self.path / "data" / f"{run:05}.npz", arrays)

    def read_data(self, run: int) -> dict[str, np.ndarray]:
        """The arrays that `write_data` wrote. Raises `RunFolderError` if there are none."""
        return read_arrays(self.path / "data" / f"{run:05}.npz", "run with record.data = true")

    def write_text(self, name: str, text: str) -> None:
        write_atomically(self.path / name, lambda path: path.write_text(text, encoding="utf-8"))

    def write_figure(self, name: str, figure: Any) -> None:
        """Writes a matplotlib figure as figures/<name>.png and, without a date, figures/<name>.pdf."""
        figures = self.path / "figures"
        write_atomically(figures / f"{name}.png", lambda path: figure.savefig(path, format="png"))
        figure.set_layout_engine("none")  # laid out once; the positions are shares of the figure
        dateless = {"CreationDate": None}
        write_atomically(figures / f"{name}.pdf", lambda path: figure.savefig(path, format="pdf", metadata=dateless))


def _named(params: Any) -> dict[str, Any]:
    """A model's parameters by name; those of a plug-in need not be a dict."""
    return dict(params) if isinstance(params, dict) else {"params": params}
