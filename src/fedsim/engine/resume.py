"""Opens run folders: starts a new run, or resumes or extends one that the folder holds."""

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedsim.config.components import defaults
from fedsim.config.kinds import KINDS
from fedsim.engine.manifest import ENVIRONMENT, Manifest, dump_groups, make_manifest, read_groups
from fedsim.engine.matching import OR_ELSE, groups_to_extend, list_changes, match_runs
from fedsim.engine.plan import Plan, fit_layouts, with_completed_first
from fedsim.errors import ConfigError, RunFolderError
from fedsim.runs.folder import RunFolder


def open_folder(
    folder: RunFolder,
    plan: Plan,
    force: bool = False,
    allow_mismatch: bool = False,
    extend: bool = False,
    fit: Callable[[Plan], Plan] = fit_layouts,
) -> tuple[Manifest, Plan]:
    """The manifest of the run in `folder`, new or resumed, and the plan with the order and groups of its runs.

    `fit` narrows the layouts of new groups; the other options are those of `run_plan`. Raises `RunFolderError` if the
    folder cannot be used, and `ConfigError` for `extend` with `force`.
    """
    if extend and force:
        raise ConfigError("--extend: must be used without --force, which deletes the results")
    if folder.is_occupied():
        folder.read_manifest()  # raises if it is no run folder, before anything is written
    elif extend:
        raise RunFolderError(f"{folder.path}: no run folder to extend; leave out --extend")
    folder.make_directory()
    with folder.lock():
        if folder.is_occupied():
            manifest = folder.read_manifest()
            if not force:
                return resume(folder, _with_new_keys(manifest), plan, allow_mismatch, extend, fit)
            _check_idle(folder, manifest)
        plan = fit(plan)
        manifest = make_manifest(plan) | {"id": uuid.uuid4().hex}
        folder.create(manifest)
        folder.write_text("config.toml", manifest["config"])
        return manifest, plan


def resume(
    folder: RunFolder, manifest: Manifest, plan: Plan, allow_mismatch: bool, extend: bool, fit: Callable[[Plan], Plan]
) -> tuple[Manifest, Plan]:
    """As `open_folder`, for a folder that has the `manifest`."""
    plan = with_completed_first(plan, match_runs(folder, manifest, plan, extend))
    reopened = groups_to_extend(folder, manifest, plan)
    is_longer = bool(plan.groups or reopened)
    is_complete = manifest["status"] == "complete" and folder.has_joined_tables() and not is_longer
    current = make_manifest(plan)
    _check_unchanged(folder, manifest, current)
    if manifest.get("claims") != current["claims"]:
        manifest = manifest | {"claims": current["claims"]}
        folder.write_manifest(manifest)
    groups = read_groups(manifest)
    environment = {key: current[key] for key in ENVIRONMENT}
    accepted = [{key: manifest.get(key) for key in ENVIRONMENT}, *manifest.get("mismatches", [])]
    if environment not in accepted and not allow_mismatch:
        _check_environment(folder, accepted[0], environment, is_complete)
    if is_complete:
        return manifest, replace(plan, groups=groups)
    num_devices, available = max((group.layout.num_devices for group in groups), default=1), current["device"]["count"]
    if num_devices > available:
        raise RunFolderError(f"{folder.path}: its layouts need {num_devices} devices, got {available}; {OR_ELSE}")
    num_processes = plan.machine.num_processes
    if any(group.layout.num_devices % num_processes for group in groups):
        raise RunFolderError(f"{folder.path}: {num_processes} processes cannot share its layouts evenly; {OR_ELSE}")
    if environment not in accepted:
        manifest = manifest | {"mismatches": [*accepted[1:], environment]}
    if is_longer:
        _check_idle(folder, manifest)
        groups += fit(plan).groups
        manifest = manifest | {key: current[key] for key in ("config", "data", "files", "runs", "num_clients")}
        for number in reopened:
            folder.reopen(number)
    manifest = manifest | {"status": "incomplete", "plan": dump_groups(groups)}
    folder.write_manifest(manifest)
    if is_longer:
        folder.write_text("config.toml", manifest["config"])
    return manifest, replace(plan, groups=groups)


def _check_idle(folder: RunFolder, manifest: Manifest) -> None:
    """Raises `RunFolderError` if a process works on a group of the manifest."""
    for number in range(len(manifest["plan"])):
        if folder.is_locked(number):
            raise RunFolderError(f"{folder.path}: {folder.describe_holder(number)}; stop that first")


def _check_unchanged(folder: RunFolder, manifest: Manifest, current: Manifest) -> None:
    """Raises `RunFolderError` if the data sets or plug-ins have changed since the run started."""
    if not set(manifest.get("data", [])) <= set(current["data"]):
        raise RunFolderError(f"{folder.path}: the data set has changed since this run started; restore it, {OR_ELSE}")
    digests = manifest.get("files", {})
    for name, digest in current["files"].items():
        if digests.get(name, digest) != digest:
            raise RunFolderError(f"{folder.path}: {name} has changed since this run started; restore it, {OR_ELSE}")


def _check_environment(folder: RunFolder, before: Manifest, now: Manifest, is_complete: bool) -> None:
    """Raises `RunFolderError` if code, versions or devices have changed since the run started.

    For a run that `is_complete`, only changed code matters.
    """
    sources = before["source"] or {}
    if changed := [f"fedsim/{name}" for name, digest in now["source"].items() if sources.get(name) != digest]:
        to = "show its rows" if is_complete else "resume"
        raise RunFolderError(
            f"{folder.path}: fedsim's code has changed since this run started ({', '.join(changed)}); add "
            f"--allow-mismatch to {to} all the same, {OR_ELSE}"
        )
    if not is_complete:
        raise RunFolderError(
            f"{folder.path}: versions or devices have changed since this run started ({list_changes(before, now)}), "
            f"so rows may differ in their last digits; add --allow-mismatch to resume all the same, {OR_ELSE}"
        )


def _with_new_keys(manifest: Manifest) -> Manifest:
    """The manifest with the keys that were added to fedsim after it was written, at their defaults."""
    defaults_of: dict[str, dict[str, Any]] = {}  # by the components of a run

    def with_defaults(run: dict[str, Any]) -> dict[str, Any]:
        names = repr([run.get(key) for key in KINDS])
        if names not in defaults_of:
            try:
                defaults_of[names] = json.loads(json.dumps(defaults(run)))
            except ConfigError:  # it names a plug-in that no longer exists, so it matches no run
                defaults_of[names] = {}
        return defaults_of[names] | run

    return manifest | {"runs": [with_defaults(run) for run in manifest["runs"]]}
