"""Run folders: where the results of an experiment lie, and how they get there unbroken.

    config.toml       the experiment with every key resolved; running it gives the same results
    manifest.json     status, plan (groups, widths), versions, device, seconds
    parts/            rows of one group between two evaluations; written once, never changed
    models/           a model a run, if `record.models` asks for them
    rounds.parquet    all parts joined: one row a run and evaluated round
    clients.parquet   one row a run, round and client of its cohort
    summary.csv       one row a cell: mean and deviation over seeds (`fedsim report`)
    figures/          pictures (`fedsim report`)

Every file is written under another name and then moved, so that what is there is whole.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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
MANIFEST_KEYS = {"status", "config", "runs", "plan", "groups", "versions", "device"}


class RunFolder:
    """One experiment's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def parts(self) -> Path:
        return self.path / "parts"

    def is_occupied(self) -> bool:
        """Whether anything is there."""
        return self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir()))

    def create(self, manifest: dict[str, Any]) -> None:
        """Makes the folder, or empties it of results; the manifest goes first, so that it never promises too much."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be made: {error.strerror}; choose another --out") from None
        self.write_manifest(manifest)
        for pattern in ("parts/*.parquet", "*.parquet", "summary.csv", "figures/*.png"):
            for path in self.path.glob(pattern):
                path.unlink()

    def is_joined(self) -> bool:
        """Whether the joined tables are there."""
        return all((self.path / f"{kind}.parquet").exists() for kind in SCHEMAS)

    def count_parts(self, group: int) -> int:
        """Files that a group has written."""
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
        """Writes a matplotlib figure as figures/<name>.png."""
        _atomically(self.path / "figures" / f"{name}.png", lambda path: figure.savefig(path, format="png"))

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
            table = pa.concat_tables([_read_table(path, schema) for path in paths] or [schema.empty_table()])
            keys = [(name, "ascending") for name in ("run", "round", "client_id") if name in schema.names]
            _write_table(self.path / f"{kind}.parquet", table.sort_by(keys))

    def read(self, kind: str) -> pa.Table:
        """The joined rows; `RunFolderError` where they are missing or broken."""
        return _read_table(self.path / f"{kind}.parquet", SCHEMAS[kind])


def _save(path: Path, arrays: dict[str, Any]) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)


def _read_table(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        return pq.read_table(path, schema=schema)
    except FileNotFoundError:
        raise RunFolderError(f"{path}: missing; the run is not complete: run its config.toml again") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise RunFolderError(f"{path}: broken: {str(error).splitlines()[0]}; start over with --force") from None


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
