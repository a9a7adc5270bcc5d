"""The file manifest.json of a run folder. Keys that all its runs share are written once."""

import json
from pathlib import Path
from typing import Any

from fedsim.errors import RunFolderError, describe_os_error
from fedsim.runs.sweep import split_common

MANIFEST = "manifest.json"
KEYS = {"status", "config", "runs", "plan", "versions", "device"}
COMMON = "common"  # in the file: the keys that all runs share, which are left out in "runs"


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
    if not isinstance(manifest, dict) or not manifest.keys() >= KEYS or not manifest["runs"]:
        raise RunFolderError(f"{path}: broken: not a manifest of fedsim")
    common, plan = manifest.pop(COMMON, {}), manifest["plan"] or []
    for name, tables in (("runs", manifest["runs"]), ("plan", plan)):
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in (common, *tables)):
            raise RunFolderError(f"{path}: broken: its {name} must be tables of keys")
    manifest["runs"] = [common | run for run in manifest["runs"]]
    planned = sorted(run for group in plan for run in group.get("runs", ()))
    if planned and planned != list(range(len(manifest["runs"]))):
        what = f"{len(manifest['runs'])} runs, but {len(planned)} are in its plan"
        raise RunFolderError(f"{path}: broken: {what}; run its config.toml again with --force")
    return manifest
