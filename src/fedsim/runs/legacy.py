"""Run folders of fedsim 0.3: reports read them, but they are not resumed."""

import json
import tomllib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec

from fedsim.errors import RunFolderError, describe_os_error
from fedsim.runs.files import check_config
from fedsim.runs.groups import ROUNDS, Completion, GroupFolder, Record, RowFile

MANIFEST = "manifest.json"


class _Manifest(msgspec.Struct):
    status: str
    config: str
    runs: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    versions: dict[str, Any]
    device: dict[str, Any] | None
    source: dict[str, str] | None = None
    common: dict[str, Any] = {}
    num_clients: list[int] = []
    claims: str | None = None
    data: list[str] = []
    files: dict[str, str] = {}
    checksums: dict[str, int] = {}
    seconds_compiling: float = 0.0
    seconds_running: float = 0.0
    tables: dict[str, Any] = {}
    """Of `config`, which is TOML."""


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
    return {path / "config.toml": _read(path).tables}


def _read(folder: Path) -> _Manifest:
    path = folder / MANIFEST
    try:
        manifest = msgspec.convert(json.loads(path.read_text(encoding="utf-8")), _Manifest)
        manifest.tables = check_config(tomllib.loads(manifest.config) | {"report": {"claims": manifest.claims}})
    except OSError as error:
        raise RunFolderError(f"{describe_os_error(error)}; use another path") from None
    except ValueError as error:
        raise RunFolderError(f"{path}: broken: not a manifest of fedsim: {error}") from None
    manifest.runs = [manifest.common | run for run in manifest.runs]
    if not all(isinstance(run.get(ROUNDS), int) for run in manifest.runs):
        raise RunFolderError(f"{path}: broken: not a manifest of fedsim: runs must have {ROUNDS}")
    return manifest


class _LegacyGroup(GroupFolder):
    """A folder of fedsim 0.3. The ids of its runs are their positions."""

    remedy = "restore it, or run its config.toml again into another folder"

    @cached_property
    def _manifest(self) -> _Manifest:
        return _read(self.path)

    @cached_property
    def record(self) -> Record:
        manifest, num_clients = self._manifest, dict(enumerate(self._manifest.num_clients))
        runs = [
            {"id": str(position), "position": position, "num_clients": num_clients.get(position), **run}
            for position, run in enumerate(manifest.runs)
        ]
        environment = {"versions": manifest.versions, "device": manifest.device, "source": manifest.source}
        is_in_memory = any(run.get("arrays.path") == "" for run in manifest.runs)  # others had digests of another kind
        data = " ".join(manifest.data[:-1]) if is_in_memory else ""  # of each split; the last is that of their kind
        return Record(0.0, runs, {}, [environment], data, manifest.files)

    def read_completion(self) -> Completion:
        manifest = self._manifest
        if manifest.status != "complete":
            return Completion()
        return Completion(self.num_rounds, 0, manifest.seconds_compiling, manifest.seconds_running)

    def _files(self, kind: str = "*") -> Iterator[RowFile]:
        if self._manifest.status == "complete":
            yield RowFile(0, self.num_rounds, self.path / f"{kind}.parquet", 1, self._manifest.checksums.get(kind))
        else:
            for path in self.path.glob("parts/[0-9]*"):
                yield from GroupFolder(path)._files(kind)

    def _arrays(self, kind: str, run: str) -> Path:
        return super()._arrays(kind, run.zfill(5))
