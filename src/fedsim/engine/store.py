"""Which runs of a plan a run folder has, and groups for all others."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import msgspec

from fedsim.config.components import data_choice, flatten
from fedsim.config.roles import run_id
from fedsim.config.schema import Config
from fedsim.engine import factories
from fedsim.engine.environment import dataset_digest, environment
from fedsim.engine.layout import Layout
from fedsim.engine.plan import Group, Plan, fit_layouts, with_groups_of
from fedsim.errors import ConfigError, RunFolderError
from fedsim.runs import legacy
from fedsim.runs.differences import find_differences
from fedsim.runs.folder import RunFolder
from fedsim.runs.groups import ROUNDS, GroupFolder, Record
from fedsim.runs.sweep import section_name

OR_ELSE = "or choose another --out"
MAX_CHANGES = 3  # that a message lists
CLIENTS = ("none", "evaluated", "all")  # values of record.clients, each with all that the one before it has
Environment = Mapping[str, Any]


def open_folder(
    folder: RunFolder,
    plan: Plan,
    force: bool = False,
    allow_mismatch: bool = False,
    fit: Callable[[Plan], Plan] = fit_layouts,
) -> Plan:
    """The plan with the groups that are still to be run: those that `folder` has, and new ones of all other runs.

    New groups are added to the folder, with layouts that `fit` narrows. A group that is resumed may have other runs as
    well, which the plan then has, too. The options are those of `run_plan`. Raises `RunFolderError` if the folder
    cannot be used.
    """
    if folder.is_occupied():
        folder.check()  # before anything is written
    if legacy.is_run_folder(folder.path):
        raise RunFolderError(f"{folder.path}: has runs of fedsim 0.3, which cannot be resumed; choose another --out")
    folder.make_directory()
    with folder.lock():
        known = folder.groups() if folder.is_occupied() else []
        missing, incomplete, repeated = find_missing(folder, known, plan, force, allow_mismatch)
        current, created = environment(), time.time()
        if not force:
            _check_environment(folder, known, current, bool(missing or incomplete or repeated), allow_mismatch)
        runs = list(plan.runs)
        for position, num_rounds in missing.items():
            runs[position] = _with_rounds(runs[position], num_rounds)
        resumed = [_resume(group, num_rounds, plan, runs, current) for group, num_rounds in incomplete.items()]
        again = [_stored_group(group, num_rounds, plan, runs) for group, num_rounds in repeated.items()]
        plan = replace(plan, runs=runs)
        added = [*again, *fit(with_groups_of(plan, list(missing))).groups]
        names = folder.add_groups((_name(plan, group), _record(plan, group, current, created)) for group in added)
        folder.write_config(f"{plan.experiment.name}-{plan.experiment.digest()}", plan.experiment.dump())
    groups = [*resumed, *(replace(group, folder=name) for group, name in zip(added, names, strict=True))]
    return replace(plan, groups=sorted(groups, key=lambda group: min(group.runs)))


def find_missing(
    folder: RunFolder, known: Sequence[GroupFolder], plan: Plan, force: bool, allow_mismatch: bool
) -> tuple[dict[int, int], dict[GroupFolder, int], dict[GroupFolder, int]]:
    """Positions in the plan of runs that no group has, groups to be resumed, groups to be repeated; rounds of each.

    Groups are repeated for more rounds if their final states were not saved. `force` finds no run in any group.
    Raises `RunFolderError` if data or plug-ins have changed.
    """
    latest = {run["id"]: (group, run) for group in known for run in group.record.runs}
    digests = {choice: dataset_digest(dataset) for choice, dataset in plan.datasets.items()}
    files = factories.plugin_files(plan.runs)
    completions = {group: group.read_completion() for group in known}
    missing: dict[int, int] = {}
    resumed: dict[GroupFolder, int] = {}
    repeated: dict[GroupFolder, int] = {}
    for position, config in enumerate(plan.runs):
        num_rounds = config.server.num_rounds
        if (key := run_id(config)) not in latest:
            missing[position] = num_rounds
            continue
        group, run = latest[key]
        if force:
            if group.is_locked():
                raise RunFolderError(f"{folder.path}: {group.describe_holder()}; stop that first")
            missing[position] = num_rounds
            continue
        changed = _changed_inputs(group.record, digests[data_choice(config)], files)
        if changed and not allow_mismatch:
            raise RunFolderError(
                f"{folder.path}: {changed} has changed since its runs were computed; restore it, add --allow-mismatch "
                f"to compute only missing runs with the new one, {OR_ELSE}"
            )
        if config.record.models and num_rounds < run[ROUNDS]:
            raise RunFolderError(
                f"{folder.path}: has models after {run[ROUNDS]} rounds, not {num_rounds}; choose another --out"
            )
        is_complete, longest = completions[group] is not None, max(num_rounds, run[ROUNDS])
        if not _records(run, config) or (changed and not is_complete):
            missing[position] = longest
        elif not is_complete or num_rounds > run[ROUNDS]:
            needed = repeated if is_complete and not group.has_checkpoint() else resumed
            needed[group] = max(longest, needed.get(group, 0))
    return missing, resumed, repeated


def _records(run: Mapping[str, Any], config: Config) -> bool:
    """Whether the stored `run` has all that `config` records, except final states."""
    record = config.record
    has_flags = all(run[f"record.{key}"] or not getattr(record, key) for key in ("losses", "models", "data"))
    return has_flags and CLIENTS.index(run["record.clients"]) >= CLIENTS.index(record.clients)


def _changed_inputs(record: Record, data: str, files: Mapping[str, str]) -> str:
    """The data set or the plug-in that has changed since the group was added; "" if none has."""
    if record.data != data:
        return "the data set"
    changed = [name for name, digest in record.files.items() if files.get(name, digest) != digest]
    return changed[0] if changed else ""


def _check_environment(
    folder: RunFolder, known: Sequence[GroupFolder], current: Environment, is_pending: bool, allow_mismatch: bool
) -> None:
    """Raises `RunFolderError` if code, versions or devices have changed since the folder's runs were computed.

    If nothing is to be computed, only changed code matters.
    """
    accepted = [before for group in known for before in group.record.environments]
    if allow_mismatch or not accepted or current in accepted:
        return
    before = accepted[-1]
    if all(other["source"] != current["source"] for other in accepted):
        sources = before["source"] or {}
        changed = [f"fedsim/{name}" for name, digest in current["source"].items() if sources.get(name) != digest]
        to = "compute missing ones" if is_pending else "show its rows"
        raise RunFolderError(
            f"{folder.path}: fedsim's code has changed since its runs were computed ({', '.join(changed)}); add "
            f"--allow-mismatch to {to} all the same, {OR_ELSE}"
        )
    if is_pending:
        raise RunFolderError(
            f"{folder.path}: versions or devices have changed since its runs were computed "
            f"({list_changes(before, current)}), so rows may differ in their last digits; add --allow-mismatch to "
            f"compute missing ones all the same, {OR_ELSE}"
        )


def list_changes(before: Environment, now: Environment) -> str:
    """The first few keys whose values differ, for example "versions.jax was 0.10.2, is 0.12.0"."""
    changes = [f"{key} was {old}, is {new}" for key, old, new in find_differences(dict(before), dict(now))]
    more = [f"and {len(changes) - MAX_CHANGES} more"] if len(changes) > MAX_CHANGES else []
    return "; ".join([*changes[:MAX_CHANGES], *more])


def _with_rounds(config: Config, num_rounds: int) -> Config:
    return replace(config, server=replace(config.server, num_rounds=num_rounds))


def _resume(group: GroupFolder, num_rounds: int, plan: Plan, runs: list[Config], current: Environment) -> Group:
    """The group of a plan that continues a stored one; see `_stored_group`."""
    resumed, record = _stored_group(group, num_rounds, plan, runs), group.record
    final_states = runs[resumed.runs[0]].record.final_states
    environments = record.environments if current in record.environments else [*record.environments, dict(current)]
    rows = [run | {ROUNDS: num_rounds, "record.final_states": final_states} for run in record.runs]
    changed = msgspec.structs.replace(record, runs=rows, environments=environments)
    if changed != record:
        group.write_record(changed)
    return resumed


def _stored_group(group: GroupFolder, num_rounds: int, plan: Plan, runs: list[Config]) -> Group:
    """The group of a plan that computes the runs of a stored one with its layout, up to `num_rounds`.

    Those of its runs that `runs` lacks are added. They are recorded as before; final states also if `runs` ask for it.
    """
    record, layout = group.record, Layout(**group.record.layout)
    num_devices, num_processes = plan.machine.num_devices, plan.machine.num_processes
    if layout.num_devices > num_devices:
        needed = f"{layout.num_devices} devices, got {num_devices}"
        raise RunFolderError(f"{group.path}: its layout needs {needed}; choose another --out")
    if layout.num_devices % num_processes:
        raise RunFolderError(
            f"{group.path}: {num_processes} processes cannot share its layout evenly; choose another --out"
        )
    positions = {run_id(config): position for position, config in enumerate(runs)}
    members = []
    for run in record.runs:
        if (position := positions.get(run["id"])) is None:
            position = len(runs)
            runs.append(_stored_config(group, run, plan))
        members.append(position)
    final_states = any(runs[position].record.final_states for position in members)
    recorded = _stored_config(group, record.runs[0], plan).record
    for position in members:
        config = _with_rounds(runs[position], num_rounds)
        runs[position] = replace(config, record=replace(recorded, final_states=final_states))
    return Group(tuple(members), layout, group.path.name)


def _stored_config(group: GroupFolder, run: Mapping[str, Any], plan: Plan) -> Config:
    """The configuration of a stored run."""
    schema = plan.experiment.schema
    try:
        return schema.resolve({key: value for key, value in run.items() if key in schema.fields})
    except ConfigError as error:
        raise RunFolderError(f"{group.path}: run the configuration of its other runs first: {error}") from None


def _name(plan: Plan, group: Group) -> str:
    """The start of the name of a new group's folder."""
    return section_name(plan.runs[group.runs[0]].server.aggregator)


def _record(plan: Plan, group: Group, current: Environment, created: float) -> Record:
    dataset, configs = plan.dataset(group), plan.configs(group)
    runs = [
        {"id": run_id(config), "position": position, "num_clients": dataset.num_clients, **flatten(config)}
        for position, config in zip(group.runs, configs, strict=True)
    ]
    data, files = dataset_digest(dataset), factories.plugin_files(configs)
    return Record(created, runs, asdict(group.layout), [dict(current)], data, files)
