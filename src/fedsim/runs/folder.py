"""Run folders: where the results of an experiment lie.

config.toml       the experiment with every key resolved; running it gives the same results
manifest.json     status, plan (groups, widths), versions, device, seconds; the plan is there before the first row
parts/            rows of one group between two evaluations; written once, never changed
checkpoints/      the states of groups that are not complete; at the end of all, if `record.states` asks for them
groups/           a file for each complete group
locks/            which process works on which group
log/              the rows as JSON lines, a file a group, to be tailed while it runs
tensorboard/, slurm/   where asked for
models/           a model a run, if `record.models` asks for them
data/             the training data of each run, if `record.data` asks for them
rounds.parquet    all parts joined: one row a run and evaluated round
clients.parquet   one row a run, round and client of its cohort
info.parquet      one row a run, round and number that the rule shows of itself
                  (all three have a column for each swept key, too)
summary.csv       one row a cell: mean and deviation over seeds (`fedsim report`)
figures/          pictures (`fedsim report`)
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from fedsim.core.types import PyTree, Variables
from fedsim.errors import RunFolderError
from fedsim.runs.files import read_arrays, read_table, write_arrays, write_atomically, write_table
from fedsim.runs.locks import lock
from fedsim.runs.schemas import SCHEMAS, Tables
from fedsim.runs.swept import with_swept

MANIFEST_KEYS = {"status", "config", "runs", "plan", "versions", "device"}
SECONDS = ("seconds_compiling", "seconds_running")  # of a group, and in the manifest of all
RESUMED = "resumed"  # in the manifest: its seconds are without those before a checkpoint that was gone on from


class RunFolder:
    """One experiment's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # The folder as a whole

    def is_occupied(self) -> bool:
        """Whether anything is there but locks, jobs' logs and a manifest that is being written."""
        ours = lambda name: name in ("locks", "slurm") or name.startswith(".manifest.json.")
        return self.path.exists() and (
            not self.path.is_dir() or any(not ours(path.name) for path in self.path.iterdir())
        )

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
        for name in ("groups", "checkpoints", "models", "data", "log", "tensorboard"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        tables = ("summary.csv", "paired.csv", "ranks.csv", "choices.csv", "table.*", "worst.*", "paper.md")
        for pattern in ("parts/*.parquet", "*.parquet", *tables, "figures/*.png", "figures/*.pdf"):
            for path in self.path.glob(pattern):
                path.unlink()
        self.write_manifest(manifest)

    def alone(self) -> AbstractContextManager[bool]:
        """Waits until no other process makes or completes the folder."""
        return lock(self.path / "locks" / "folder.lock", wait=True)

    def read_manifest(self) -> dict[str, Any]:
        """The manifest; `RunFolderError` where there is none or it is broken."""
        path = self.path / "manifest.json"
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except NotADirectoryError:
            raise RunFolderError(f"{self.path}: not a run folder but a file; name another") from None
        except FileNotFoundError:
            raise RunFolderError(f"{self.path}: not a run folder (it has no manifest.json); name another") from None
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path}: broken: {error}") from None
        if not isinstance(manifest, dict) or not manifest.keys() >= MANIFEST_KEYS or not manifest["runs"]:
            raise RunFolderError(f"{path}: broken: not a manifest of fedsim")
        planned = sorted(run for group in manifest["plan"] or () for run in group.get("runs", ()))
        if planned and planned != list(range(len(manifest["runs"]))):
            what = f"{len(manifest['runs'])} runs, but {len(planned)} are in its plan"
            raise RunFolderError(f"{path}: broken: {what}; run its config.toml again with --force")
        return manifest

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        self.write_text("manifest.json", json.dumps(manifest, indent=2) + "\n")

    # Groups

    def lock_group(self, group: int) -> AbstractContextManager[bool]:
        """Whether this process is now the only one to work on `group`, until the end of the block."""
        return lock(self.path / "locks" / f"{group:05}.lock")

    def is_locked(self, group: int) -> bool:
        """Whether a process works on `group`."""
        with self.lock_group(group) as is_ours:
            return not is_ours

    def checkpoints(self, group: int) -> Path:
        """Where the checkpoints of a group lie."""
        return self.path / "checkpoints" / f"{group:05}"

    def has_checkpoint(self, group: int) -> bool:
        """Whether there are states to go on from."""
        return any(path.name.isdigit() for path in self.checkpoints(group).glob("*"))

    def finish(self, group: int, seconds: dict[str, float], keep_states: bool = False) -> None:
        """Notes that a group is complete; its checkpoints go, unless it may get more rounds."""
        entry = seconds | {"num_parts": self._count_parts(group)}
        self.write_text(self._note(group), json.dumps(entry, indent=2) + "\n")
        if not keep_states:
            shutil.rmtree(self.checkpoints(group), ignore_errors=True)

    def reopen(self, group: int) -> None:
        """Takes back that a group is complete."""
        (self.path / self._note(group)).unlink(missing_ok=True)

    def _note(self, group: int) -> str:
        """The file that says that a group is complete."""
        return f"groups/{group:05}.json"

    def finished(self, group: int) -> dict[str, float] | None:
        """The seconds of a complete group; None where it is not complete, or parts of it are missing."""
        try:
            entry: dict[str, float] = json.loads((self.path / self._note(group)).read_text())
        except (OSError, ValueError):
            return None
        return entry if entry.get("num_parts") == self._count_parts(group) else None

    # Rows

    @property
    def parts(self) -> Path:
        """Where rows lie as they come."""
        return self.path / "parts"

    def write_part(self, group: int, round_: int, tables: Tables) -> None:
        """The new rows of a group up to `round_`."""
        for kind, columns in tables.items():
            schema = SCHEMAS[kind]
            fields = [pa.array(columns[f.name], f.type, from_pandas=True) for f in schema]  # NaN becomes null
            write_table(self.parts / f"{group:05}-{round_:08}-{kind}.parquet", pa.table(fields, schema=schema))

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

    def _count_parts(self, group: int) -> int:
        return len(list(self.parts.glob(f"{group:05}-*.parquet")))

    def join(self, runs: Sequence[Mapping[str, Any]] = ()) -> None:
        """Joins the parts into one table of each kind, ordered by run, round and client, with what `runs` differ in."""
        for kind in SCHEMAS:
            write_table(self.path / f"{kind}.parquet", with_swept(self.so_far(kind), runs))

    def so_far(self, kind: str) -> pa.Table:
        """The rows of "rounds", "clients" or "info" that are in parts, ordered."""
        schema, remedy = SCHEMAS[kind], "delete it and run again, which makes its group again"
        tables = [read_table(path, schema, remedy) for path in sorted(self.parts.glob(f"*-{kind}.parquet"))]
        keys = [(name, "ascending") for name in ("run", "round", "client_id", "name") if name in schema.names]
        return pa.concat_tables(tables or [schema.empty_table()]).sort_by(keys)

    def is_joined(self) -> bool:
        """Whether the joined tables are there."""
        return all((self.path / f"{kind}.parquet").exists() for kind in SCHEMAS)

    def read(self, kind: str) -> pa.Table:
        """The joined rows of "rounds", "clients" or "info"; `RunFolderError` where they are missing or broken."""
        remedy = "delete it and run its config.toml again"
        return read_table(self.path / f"{kind}.parquet", SCHEMAS[kind], remedy, others=True)

    # Models, data, texts and figures

    def write_model(self, run: int, variables: Variables) -> None:
        """Writes a run's model as models/<run>.npz, an array a path such as "Dense_0/kernel".

        Batch statistics, where there are any, are below "statistics/".
        """
        tree = {**_named(variables.params), **({"statistics": variables.statistics} if variables.statistics else {})}
        flat, _ = jax.tree.flatten_with_path(tree)
        arrays = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}
        write_arrays(self.path / "models" / f"{run:05}.npz", arrays)

    def read_model(self, run: int) -> dict[str, np.ndarray]:
        """The parameters that `write_model` wrote, by path; `RunFolderError` where there are none."""
        return read_arrays(self.path / "models" / f"{run:05}.npz", "was it run with record.models?")

    def write_data(self, run: int, arrays: dict[str, np.ndarray]) -> None:
        """Writes the training data of a run, the fields of `ClientData`, as data/<run>.npz."""
        write_arrays(self.path / "data" / f"{run:05}.npz", arrays)

    def read_data(self, run: int) -> dict[str, np.ndarray]:
        """What `write_data` wrote; `RunFolderError` where there is none."""
        return read_arrays(self.path / "data" / f"{run:05}.npz", "was it run with record.data?")

    def write_text(self, name: str, text: str) -> None:
        write_atomically(self.path / name, lambda path: path.write_text(text, encoding="utf-8"))

    def write_figure(self, name: str, figure: Any) -> None:
        """Writes a matplotlib figure as figures/<name>.png and, without a date, as figures/<name>.pdf."""
        path = self.path / "figures"
        write_atomically(path / f"{name}.png", lambda beside: figure.savefig(beside, format="png"))
        dateless = {"CreationDate": None}
        write_atomically(path / f"{name}.pdf", lambda beside: figure.savefig(beside, format="pdf", metadata=dateless))


def _named(params: PyTree) -> dict[str, PyTree]:
    """A model's parameters by name; a user's may be no dict."""
    return dict(params) if isinstance(params, dict) else {"params": params}
