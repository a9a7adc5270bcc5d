"""Opening a run folder: a new manifest, or the one to go on with."""

import platform
import tomllib
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import jax

import fedsim
from fedsim.errors import RunFolderError
from fedsim.keys import flatten
from fedsim.layout import Layout
from fedsim.plan import Plan
from fedsim.store import RunFolder
from fedsim.sweep import Group

VERSIONED = ("jax", "jaxlib", "flax", "optax", "numpy")
MOST_TOLD = 3  # differences


def open_folder(folder: RunFolder, plan: Plan, force: bool, mix: bool) -> dict[str, Any]:
    """The manifest to go on with: the folder's own if it is of this very plan, else a new one."""
    if folder.is_occupied():
        folder.read_manifest()  # raises where the folder is somebody else's
    folder.make()
    with folder.alone():
        manifest = new_manifest(plan)
        if folder.is_occupied():
            found = folder.read_manifest()
            if not force:
                return _go_on(folder, found, manifest, mix)
            if any(folder.is_claimed(number) for number in range(len(found["plan"]))):
                raise RunFolderError(f"{folder.path}: another process works on it; stop that first")
        folder.create(manifest)
        folder.write_text("config.toml", plan.experiment.dump())
        return manifest


def _go_on(folder: RunFolder, found: dict[str, Any], manifest: dict[str, Any], mix: bool) -> dict[str, Any]:
    """The manifest `found` in the folder, where the experiment of `manifest` may go on with it."""
    if found["config"] != manifest["config"]:
        differences = _differences(*(tomllib.loads(m["config"]) for m in (found, manifest)))
        raise RunFolderError(
            f"{folder.path}: holds results of another config: {differences}; choose another --out, or add --force to "
            "start over"
        )
    here = {key: manifest[key] for key in ("versions", "device")}
    there = {key: found[key] for key in ("versions", "device")}
    if here != there and here not in found.get("mixed", []):
        if not mix:
            raise RunFolderError(
                f"{folder.path}: was begun with other versions or devices ({_differences(there, here)}), so that rows "
                "could differ in their last digits; add --force to start over, --mix to go on all the same, or choose "
                "another --out"
            )
        found = found | {"mixed": [*found.get("mixed", []), here]}
        folder.write_manifest(found)
    if found["status"] == "complete" and not folder.is_joined():
        found = found | {"status": "incomplete"}
        folder.write_manifest(found)
    return found


def _differences(there: dict[str, Any], here: dict[str, Any]) -> str:
    """The first few keys whose values differ, for example "versions.jax 0.10.2 there, 0.12.0 here"."""
    one, other = _flat(there), _flat(here)
    keys = [key for key in one | other if one.get(key) != other.get(key)]
    told = [f"{key} {one.get(key, 'not set')} there, {other.get(key, 'not set')} here" for key in keys[:MOST_TOLD]]
    return "; ".join(told) + f"; and {len(keys) - MOST_TOLD} more" * (len(keys) > MOST_TOLD)


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested table as {dotted key: value}."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def new_manifest(plan: Plan) -> dict[str, Any]:
    """The manifest of a plan of which nothing has run."""
    device = jax.devices()[0]
    return {
        "status": "incomplete",
        "config": plan.experiment.dump(),
        "versions": {"fedsim": fedsim.__version__, "python": platform.python_version()}
        | {name: version(name) for name in VERSIONED},
        "device": {"platform": device.platform, "kind": device.device_kind, "count": jax.device_count()},
        "runs": [flatten(config) for config in plan.runs],
        "plan": [{"runs": list(group.runs), "layout": asdict(group.layout)} for group in plan.groups],
    }


def read_group(entry: dict[str, Any]) -> Group:
    """A group of a manifest's plan."""
    return Group(tuple(entry["runs"]), Layout(**entry["layout"]))
