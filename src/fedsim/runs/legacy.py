"""Run folders of fedsim 0.3: reports read them, but they are not resumed."""

import json
import tomllib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import numpy as np
import polars as pl

from fedsim.errors import RunFolderError, describe_os_error
from fedsim.runs.files import read_arrays, read_bytes, read_table
from fedsim.runs.groups import Completion, GroupFolder, Record
from fedsim.runs.parts import Parts
from fedsim.runs.schemas import SCHEMAS

MANIFEST = "manifest.json"
REMEDY = "restore it, or run its config.toml again into another folder"


class _Manifest(TypedDict):
    status: str
    config: str
    runs: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    versions: dict[str, Any]
    device: dict[str, Any] | None
    common: NotRequired[dict[str, Any]]
    num_clients: NotRequired[list[int]]
    claims: NotRequired[str | None]
    data: NotRequired[list[str]]
    source: NotRequired[dict[str, str] | None]
    files: NotRequired[dict[str, str]]
    checksums: NotRequired[dict[str, int]]
    seconds_compiling: NotRequired[float]
    seconds_running: NotRequired[float]
    resumed: NotRequired[bool]


def is_run_folder(path: Path) -> bool:
    """Whether the folder is one of fedsim 0.3."""
    return (path / MANIFEST).exists()


def groups(path: Path) -> list[GroupFolder]:
    """All runs of such a folder as one group; none if it is another folder."""
    return [_LegacyGroup(path)] if is_run_folder(path) else []


def configs(path: Path) -> dict[Path, dict[str, Any]]:
    """The configuration of such a folder: file and tables."""
    if not is_run_folder(path):
        return {}
    manifest = _read(path)
    return {path / "config.toml": tomllib.loads(manifest["config"]) | {"report": {"claims": manifest.get("claims")}}}


def _read(folder: Path) -> _Manifest:
    path = folder / MANIFEST
    try:
        return msgspec.convert(json.loads(path.read_text(encoding="utf-8")), _Manifest)
    except OSError as error:
        raise RunFolderError(f"{describe_os_error(error)}; use another path") from None
    except ValueError as error:
        raise RunFolderError(f"{path}: broken: not a manifest of fedsim: {error}") from None


class _LegacyGroup(GroupFolder):
    """A folder of fedsim 0.3. The ids of its runs are their positions."""

    @cached_property
    def _manifest(self) -> _Manifest:
        return _read(self.path)

    @cached_property
    def record(self) -> Record:
        manifest = self._manifest
        number, common = len(manifest["runs"]), manifest.get("common", {})
        num_clients: Sequence[int | None] = manifest.get("num_clients", [None] * number)
        runs = [
            {"id": f"{position:05}", "position": position, "num_clients": num_clients[position], **common, **run}
            for position, run in enumerate(manifest["runs"])
        ]
        environment = {key: manifest.get(key) for key in ("versions", "device", "source")}
        data = " ".join(manifest.get("data", [])[:-1])  # of each split; the last is that of the kind of data in memory
        return Record(0.0, runs, {}, [environment], data, manifest.get("files", {}))

    def read_completion(self) -> Completion | None:
        manifest = self._manifest
        if manifest["status"] != "complete":
            return None
        compiling, running = manifest.get("seconds_compiling", 0.0), manifest.get("seconds_running", 0.0)
        return Completion(self.num_rounds, 0, compiling, running, manifest.get("resumed", False))

    def rounds_completed(self) -> int:
        return max((span.last for parts in self._parts() for span in parts.spans()), default=-1)

    def is_locked(self) -> bool:
        return False

    def read(self, kind: str) -> pl.DataFrame:
        schema = SCHEMAS[kind]
        if self._manifest["status"] == "complete":
            checksum = self._manifest.get("checksums", {}).get(kind)
            return read_table(self.path / f"{kind}.parquet", schema, checksum, REMEDY).select(schema.names())
        tables = [table.select(schema.names()) for parts in self._parts() for table in parts.read(kind)]
        return pl.concat([pl.DataFrame(schema=schema), *tables])

    def check(self, kind: str) -> None:
        if self._manifest["status"] == "complete":
            read_bytes(self.path / f"{kind}.parquet", self._manifest.get("checksums", {}).get(kind), REMEDY)

    def _parts(self) -> list[Parts]:
        return [Parts(path, pl.Int32) for path in sorted((self.path / "parts").glob("[0-9]*"))]

    def read_arrays(self, kind: str, run: str) -> dict[str, np.ndarray]:
        return read_arrays(self.path / kind / f"{run}.npz", f"run with record.{kind} = true")
