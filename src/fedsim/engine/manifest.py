"""Opening a run folder: a new manifest, or the one to go on with."""

import hashlib
import json
import platform
import tomllib
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from fedsim import __version__
from fedsim.config.resolve import defaults, flatten
from fedsim.core.types import FederatedDataset
from fedsim.engine import build, devices, extension, source
from fedsim.engine.extension import OR_ELSE
from fedsim.engine.layout import Layout
from fedsim.engine.plan import Group, Plan, behind, fitted
from fedsim.errors import ConfigError, RunFolderError
from fedsim.runs.differences import differences
from fedsim.runs.folder import RunFolder

VERSIONED = ("jax", "jaxlib", "flax", "optax", "numpy")
SAME = ("versions", "device", "source")  # else rows could differ
MOST_SHOWN = 3  # differences


def open_folder(
    folder: RunFolder, plan: Plan, force: bool, mix: bool, extend: bool = False
) -> tuple[dict[str, Any], Plan]:
    """The manifest to go on with, and the plan with the runs and groups that it has.

    The folder's own manifest if it is of this very plan, or of a part of it and is to be extended; else a new one.
    """
    if folder.is_occupied():
        folder.read_manifest()  # raises where the folder is somebody else's
    elif extend:
        raise RunFolderError(f"{folder.path}: no run folder to extend; leave out --extend")
    folder.make()
    with folder.alone():
        if folder.is_occupied():
            found = folder.read_manifest()
            if not force:
                return _take_up(folder, _with_later_keys(found), plan, mix, extend)
            _nobody_else(folder, found)
        plan = fitted(plan)
        manifest = new_manifest(plan)
        folder.create(manifest)
        folder.write_text("config.toml", plan.experiment.dump())
        return manifest, plan


def _take_up(
    folder: RunFolder, found: dict[str, Any], plan: Plan, mix: bool, extend: bool
) -> tuple[dict[str, Any], Plan]:
    """The same of a folder that has the manifest `found`."""
    begun = extension.begun(found, plan, extend)
    if isinstance(begun, str):
        differences = _differences(tomllib.loads(found["config"]), tomllib.loads(plan.experiment.dump()))
        raise RunFolderError(f"{folder.path}: holds results of another config: {differences}{begun}; {OR_ELSE}")
    longer = behind(plan, begun)
    further = extension.further(folder, found, longer)
    is_longer = bool(longer.groups or further)
    new = new_manifest(longer)
    manifest = _go_on(folder, found, new, mix, is_longer)
    groups = [read_group(entry) for entry in manifest["plan"]]
    if not is_longer:
        return manifest, replace(longer, groups=groups)
    _nobody_else(folder, found)
    plan = replace(longer, groups=groups + fitted(longer).groups)
    of_all = {key: new[key] for key in ("status", "config", "data", "files", "runs")}
    manifest = manifest | of_all | {"plan": _groups(plan)}
    extension.extend(folder, manifest, further)
    return manifest, plan


def _nobody_else(folder: RunFolder, found: dict[str, Any]) -> None:
    """Raises `RunFolderError` where a process works on a group of the manifest `found`."""
    if any(folder.is_locked(number) for number in range(len(found["plan"]))):
        raise RunFolderError(f"{folder.path}: another process works on it; stop that first")


def _go_on(
    folder: RunFolder, found: dict[str, Any], manifest: dict[str, Any], mix: bool, is_longer: bool
) -> dict[str, Any]:
    """The manifest `found` in the folder, where the experiment of `manifest` may go on with it, or with more runs."""
    if not set(found.get("data", [])) <= set(manifest["data"]):
        raise RunFolderError(f"{folder.path}: was begun with other data than there are now; put those back, {OR_ELSE}")
    if changed := _changed_files(found.get("files", {}), manifest["files"]):
        raise RunFolderError(f"{folder.path}: was begun with another {changed[0]}; put that back, {OR_ELSE}")
    is_complete = found["status"] == "complete" and folder.is_joined() and not is_longer
    here = {key: manifest[key] for key in SAME}
    there = {key: found.get(key, manifest[key]) for key in SAME}  # folders from before a key existed are taken as same
    if here["source"] != there["source"] and here not in found.get("mixed", []) and not mix:
        changed = [name for name, digest in here["source"].items() if there["source"].get(name) != digest]
        does = "show its rows" if is_complete else "go on"
        raise RunFolderError(
            f"{folder.path}: was made by other code of fedsim than there is now (fedsim/{', fedsim/'.join(changed)}); "
            f"add --mix to {does} all the same, {OR_ELSE}"
        )
    if is_complete:
        return found
    layouts = [entry["layout"] for entry in found["plan"]]
    num_devices = max(layout["run_devices"] * layout["client_devices"] for layout in layouts)
    if num_devices > here["device"]["count"]:
        few = f"was begun on {num_devices} devices, of which there are {here['device']['count']} here"
        raise RunFolderError(f"{folder.path}: {few}; {OR_ELSE}")
    if here != there and here not in found.get("mixed", []):
        if not mix:
            raise RunFolderError(
                f"{folder.path}: was begun with other versions or devices ({_differences(there, here)}), so that rows "
                f"could differ in their last digits; add --mix to go on all the same, {OR_ELSE}"
            )
        found = found | {"mixed": [*found.get("mixed", []), here]}
        folder.write_manifest(found)
    if found["status"] == "complete":  # but its tables are gone
        found = found | {"status": "incomplete"}
        folder.write_manifest(found)
    return found


def _with_later_keys(found: dict[str, Any]) -> dict[str, Any]:
    """The manifest `found` with the keys that came after it was written: they are at their defaults."""
    return found | {"runs": [json.loads(json.dumps(_defaults(run))) | run for run in found["runs"]]}


def _defaults(run: dict[str, Any]) -> dict[str, Any]:
    """The defaults of a run's keys; none where it names what is not there any more."""
    try:
        return defaults(run)
    except ConfigError:  # a user's own that is not there any more: another configuration than any of now
        return {}


def _changed_files(there: dict[str, str], here: dict[str, str]) -> list[str]:
    """The names of the user's own whose files are others now."""
    return [name for name, digest in here.items() if there.get(name, digest) != digest]


def _differences(there: dict[str, Any], here: dict[str, Any]) -> str:
    """The first few keys whose values differ, for example "versions.jax 0.10.2 there, 0.12.0 here"."""
    different = differences(there, here)
    if not different:
        return "what its runs come to"
    shown = [f"{key} {one} there, {other} here" for key, one, other in different[:MOST_SHOWN]]
    if len(different) > MOST_SHOWN:
        shown.append(f"and {len(different) - MOST_SHOWN} more")
    return "; ".join(shown)


def new_manifest(plan: Plan) -> dict[str, Any]:
    """The manifest of a plan of which nothing has run."""
    return {
        "status": "incomplete",
        "config": plan.experiment.dump(),
        "versions": {"fedsim": __version__, "python": platform.python_version()}
        | {name: version(name) for name in VERSIONED},
        "device": devices.describe(),
        "source": source.digests(),
        "data": [_digest(dataset) for dataset in plan.datasets.values()],
        "files": build.user_files(plan.runs),
        "runs": [flatten(config) for config in plan.runs],
        "plan": _groups(plan),
    }


def _groups(plan: Plan) -> list[dict[str, Any]]:
    return [{"runs": list(group.runs), "layout": asdict(group.layout)} for group in plan.groups]


def _digest(dataset: FederatedDataset) -> str:
    """Changes with any example."""
    found = hashlib.blake2b(digest_size=8)
    kept_back = jax.tree.leaves((dataset.root, dataset.validation))
    for array in map(np.ascontiguousarray, (*dataset.train, dataset.x_test, dataset.y_test, *kept_back)):
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(array.data)
    return found.hexdigest()


def read_group(entry: dict[str, Any]) -> Group:
    """A group of a manifest's plan."""
    return Group(tuple(entry["runs"]), Layout(**entry["layout"]))
