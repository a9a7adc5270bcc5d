"""The file manifest.json of a run folder. Keys that all its runs share are written once."""

import json
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec

from fedsim.errors import RunFolderError, describe_os_error
from fedsim.runs.sweep import split_common

MANIFEST = "manifest.json"
COMMON = "common"  # in the file: the keys that all runs share, which are left out in "runs"


class _Group(TypedDict):
    runs: list[int]
    layout: dict[str, Any]


class _Manifest(TypedDict):
    """What other modules rely on; a manifest may have more keys."""

    status: str
    config: str
    runs: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    plan: list[_Group]
    versions: dict[str, Any]
    device: dict[str, Any]
    common: NotRequired[dict[str, Any]]
    source: NotRequired[dict[str, str] | None]
    data: NotRequired[list[str]]
    files: NotRequired[dict[str, str]]
    mismatches: NotRequired[list[dict[str, Any]]]


def format_manifest(manifest: dict[str, Any]) -> str:
    """The text of the file."""
    common, runs = split_common(manifest["runs"])
    return json.dumps(manifest | {COMMON: common, "runs": runs}, indent=2) + "\n"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, each of its runs with all keys. Raises `RunFolderError` if there is none or it is broken."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except NotADirectoryError:
        raise RunFolderError(f"{folder}: must be a run folder, got a file") from None
    except FileNotFoundError:
        raise RunFolderError(f"{folder}: must be a run folder, but has no {MANIFEST}") from None
    except OSError as error:
        raise RunFolderError(f"{describe_os_error(error)}; use another path") from None
    except ValueError as error:
        raise RunFolderError(f"{path}: broken: {error}") from None
    try:
        msgspec.convert(manifest, _Manifest)
    except msgspec.ValidationError as error:
        raise RunFolderError(f"{path}: broken: not a manifest of fedsim: {error}") from None
    common = manifest.pop(COMMON, {})
    manifest["runs"] = [common | run for run in manifest["runs"]]
    planned = sorted(run for group in manifest["plan"] for run in group["runs"])
    if planned and planned != list(range(len(manifest["runs"]))):
        what = f"{len(manifest['runs'])} runs, but {len(planned)} are in its plan"
        raise RunFolderError(f"{path}: broken: {what}; run its config.toml again with --force")
    return manifest
