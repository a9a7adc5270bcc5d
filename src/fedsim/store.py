"""Run folders: where the results of an experiment lie, and how they get there unbroken.

    config.toml       the experiment with every key resolved; running it gives the same results
    manifest.json     status, plan (groups, widths), versions, device, seconds; the plan is there before the first row
    parts/            rows of one group between two evaluations; written once, never changed
    checkpoints/      the states of groups that are not complete
    groups/           a file for each complete group
    locks/            which process works on which group
    log/              the rows as JSON lines, a file a group, to be tailed while it runs
    tensorboard/, slurm/   where asked for
    models/           a model a run, if `record.models` asks for them
    rounds.parquet    all parts joined: one row a run and evaluated round
    clients.parquet   one row a run, round and client of its cohort
    summary.csv       one row a cell: mean and deviation over seeds (`fedsim report`)
    figures/          pictures (`fedsim report`)

Every file is written under another name and then moved, so that what is there is whole.
"""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedsim.claims import claim
from fedsim.errors import RunFolderError
from fedsim.types import PyTree

ROUNDS = pa.schema(
    [
        ("run", pa.int32()),  # position in the manifest's list of runs
        ("aggregator", pa.string()),
        ("corruption", pa.string()),  # its kind; "none" for clean data
        ("fraction", pa.float64()),  # share of the clients that is corrupted, as configured
        ("lam", pa.float64()),  # null: the rule has no lambda
        ("seed", pa.int64()),
        ("round", pa.int32()),  # rounds done; 0 is the initial model
        ("test_accuracy", pa.float64()),  # 0 to 1
        ("test_loss", pa.float64()),  # mean cross-entropy in nats; null: not a number
        ("corrupted_weight", pa.float64()),  # share of the weight, since the row before, of corrupted clients; or null
        ("accuracy_p10", pa.float64()),  # percentiles of the test accuracy over clients, each on its own test examples;
        ("accuracy_p50", pa.float64()),  # null: test examples do not belong to clients
        ("accuracy_p90", pa.float64()),
        ("diverged", pa.bool_()),  # the test loss is not finite, or nobody had a weight since the row before
    ]
)
CLIENTS = pa.schema(
    [
        ("run", pa.int32()),
        ("round", pa.int32()),  # 1 is the first
        ("client_id", pa.int32()),
        ("count", pa.int32()),  # training examples
        ("loss", pa.float32()),  # as reported, at the parameters before the round; null: no report, or not recorded
        ("alpha", pa.float32()),  # weight among all clients after the round; null: not kept, or round not evaluated
        ("weight", pa.float32()),  # share in the round; null: not in the cohort, or no valid report
        ("corrupted", pa.bool_()),
        ("test_accuracy", pa.float32()),  # on its own test examples; null: has none, or round not evaluated
    ]
)
SCHEMAS = {"rounds": ROUNDS, "clients": CLIENTS}
MANIFEST_KEYS = {"status", "config", "runs", "plan", "versions", "device"}


class RunFolder:
    """One experiment's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def parts(self) -> Path:
        return self.path / "parts"

    def is_occupied(self) -> bool:
        """Whether anything is there but locks, jobs' logs and a manifest that is being written."""
        ours = lambda name: name in ("locks", "slurm") or name.startswith(".manifest.json.")
        return self.path.exists() and (
            not self.path.is_dir() or any(not ours(path.name) for path in self.path.iterdir())
        )

    def claim(self, group: int) -> AbstractContextManager[bool]:
        """Whether this process is now the only one to work on `group`, until the end of the block."""
        return claim(self.path / "locks" / f"{group:05}.lock")

    def is_claimed(self, group: int) -> bool:
        """Whether a process works on `group`."""
        with self.claim(group) as is_ours:
            return not is_ours

    def alone(self) -> AbstractContextManager[bool]:
        """Waits until no other process makes or completes the folder."""
        return claim(self.path / "locks" / "folder.lock", wait=True)

    def checkpoints(self, group: int) -> Path:
        """Where the checkpoints of a group lie."""
        return self.path / "checkpoints" / f"{group:05}"

    def make(self) -> None:
        """Makes the folder, if it is not there."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be made: {error.strerror}; choose another --out") from None

    def create(self, manifest: dict[str, Any]) -> None:
        """Empties the folder of results. Notes of what is complete go first and the manifest comes last: at any moment
        what is there is the old manifest's, or is made again.
        """
        self.make()
        for name in ("groups", "checkpoints", "models", "log", "tensorboard"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        reports = ("summary.csv", "paired.csv", "table.*", "paper.md", "figures/*.png", "figures/*.pdf")
        for pattern in ("parts/*.parquet", "*.parquet", *reports):
            for path in self.path.glob(pattern):
                path.unlink()
        self.write_manifest(manifest)

    def is_joined(self) -> bool:
        """Whether the joined tables are there."""
        return all((self.path / f"{kind}.parquet").exists() for kind in SCHEMAS)

    def rounds_written(self, group: int) -> list[int]:
        """The evaluated rounds that a group has rows of."""
        return sorted(int(path.name.split("-")[1]) for path in self.parts.glob(f"{group:05}-*-rounds.parquet"))

    def drop_parts(self, group: int, after: int = -1) -> None:
        """Deletes a group's rows of the rounds after `after`, and what a killed process left half-written."""
        for path in self.parts.glob(f"{group:05}-*.parquet"):
            if int(path.name.split("-")[1]) > after:
                path.unlink()
        for path in self.parts.glob(f".{group:05}-*"):
            path.unlink()

    def finish(self, group: int, seconds: dict[str, float]) -> None:
        """Notes that a group is complete; its checkpoints go."""
        entry = seconds | {"num_parts": self._count_parts(group)}
        self.write_text(f"groups/{group:05}.json", json.dumps(entry, indent=2) + "\n")
        shutil.rmtree(self.checkpoints(group), ignore_errors=True)

    def finished(self, group: int) -> dict[str, float] | None:
        """The seconds of a complete group; None where it is not complete, or parts of it are missing."""
        try:
            entry: dict[str, float] = json.loads((self.path / "groups" / f"{group:05}.json").read_text())
        except (OSError, ValueError):
            return None
        return entry if entry.get("num_parts") == self._count_parts(group) else None

    def _count_parts(self, group: int) -> int:
        return len(list(self.parts.glob(f"{group:05}-*.parquet")))

    def read_manifest(self) -> dict[str, Any]:
        """The manifest; `RunFolderError` where there is none or it is broken."""
        path = self.path / "manifest.json"
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise RunFolderError(f"{self.path}: not a run folder (it has no manifest.json)") from None
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path}: broken: {error}") from None
        if not isinstance(manifest, dict) or not manifest.keys() >= MANIFEST_KEYS or not manifest["runs"]:
            raise RunFolderError(f"{path}: broken: not a manifest of fedsim")
        return manifest

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        self.write_text("manifest.json", json.dumps(manifest, indent=2) + "\n")

    def write_text(self, name: str, text: str) -> None:
        _atomically(self.path / name, lambda path: path.write_text(text, encoding="utf-8"))

    def write_figure(self, name: str, figure: Any) -> None:
        """Writes a matplotlib figure as figures/<name>.png and, without a date, as figures/<name>.pdf."""
        path = self.path / "figures"
        _atomically(path / f"{name}.png", lambda beside: figure.savefig(beside, format="png"))
        dateless = {"CreationDate": None}
        _atomically(path / f"{name}.pdf", lambda beside: figure.savefig(beside, format="pdf", metadata=dateless))

    def write_part(self, group: int, round_: int, rows: dict[str, dict[str, Any]]) -> None:
        """The rows of a group up to `round_` as {"rounds": columns, "clients": columns}."""
        for kind, columns in rows.items():
            fields = [pa.array(columns[f.name], f.type, from_pandas=True) for f in SCHEMAS[kind]]  # NaN becomes null
            path = self.parts / f"{group:05}-{round_:08}-{kind}.parquet"
            _write_table(path, pa.table(fields, schema=SCHEMAS[kind]))

    def write_model(self, run: int, params: PyTree) -> None:
        """Writes a run's parameters as models/<run>.npz, an array a path such as "Dense_0/kernel"."""
        flat, _ = jax.tree.flatten_with_path(params)
        arrays = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}
        _atomically(self.path / "models" / f"{run:05}.npz", lambda path: _save(path, arrays))

    def read_model(self, run: int) -> dict[str, np.ndarray]:
        """The parameters that `write_model` wrote, by path; `RunFolderError` where there are none."""
        path = self.path / "models" / f"{run:05}.npz"
        try:
            with np.load(path) as file:
                return dict(file)
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path}: cannot be read: {error}; was it run with record.models?") from None

    def join(self) -> None:
        """Joins the parts into rounds.parquet and clients.parquet, ordered by run, round and client."""
        for kind, schema in SCHEMAS.items():
            paths = sorted(self.parts.glob(f"*-{kind}.parquet"))
            remedy = "delete it and run again, which makes its group again"
            tables = [_read_table(path, schema, remedy) for path in paths]
            table = pa.concat_tables(tables or [schema.empty_table()])
            keys = [(name, "ascending") for name in ("run", "round", "client_id") if name in schema.names]
            _write_table(self.path / f"{kind}.parquet", table.sort_by(keys))

    def read(self, kind: str) -> pa.Table:
        """The joined rows; `RunFolderError` where they are missing or broken."""
        return _read_table(self.path / f"{kind}.parquet", SCHEMAS[kind], "delete it and run its config.toml again")


def _save(path: Path, arrays: dict[str, Any]) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)


def _read_table(path: Path, schema: pa.Schema, remedy: str) -> pa.Table:
    try:
        return pq.read_table(path, schema=schema)
    except FileNotFoundError:
        raise RunFolderError(f"{path}: missing; the run is not complete: run its config.toml again") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise RunFolderError(f"{path}: broken: {str(error).splitlines()[0]}; {remedy}") from None


def _write_table(path: Path, table: pa.Table) -> None:
    _atomically(path, lambda beside: pq.write_table(table, beside))


def _atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Writes beside `path`, then moves into place; makes the folder."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(exist_ok=True)
        write(beside)
        os.replace(beside, path)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)
