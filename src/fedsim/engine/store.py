"""Which runs of a plan a run folder has, and groups for all others."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from fedsim.config.components import flatten
from fedsim.config.roles import LATER, data_choice, run_id
from fedsim.config.schema import Config, Settings
from fedsim.engine import factories
from fedsim.engine.environment import ELSEWHERE, check_environment, dataset_digest, environment
from fedsim.engine.families import Group
from fedsim.engine.fitting import fit_layouts
from fedsim.engine.layout import Layout
from fedsim.engine.plan import Plan, with_groups_of
from fedsim.errors import ConfigError, RunFolderError
from fedsim.report.keys import hashable
from fedsim.report.names import count
from fedsim.runs import legacy
from fedsim.runs.files import has_checkpoint
from fedsim.runs.folder import RunFolder
from fedsim.runs.groups import ROUNDS, GroupFolder, Record, has_all_of, has_more_than
from fedsim.runs.sweep import section_name

log = logging.getLogger("fedsim")


def open_folder(
    folder: RunFolder,
    plan: Plan,
    force: bool = False,
    allow_mismatch: bool = False,
    fit: Callable[[Plan], Plan] = fit_layouts,
    is_dry: bool = False,
) -> Plan:
    """The plan with the groups that are still to be run: those that `folder` has, and new ones of all other runs.

    New groups are added to the folder, with layouts that `fit` narrows. A group that is resumed may have other runs as
    well, which the plan then has, too. The options are those of `run_plan`; if `is_dry`, nothing is written and no
    layout narrowed. Raises `RunFolderError` if the folder cannot be used.
    """
    if folder.is_occupied():
        folder.check()  # before anything is written
    if legacy.is_run_folder(folder.path):
        raise RunFolderError(f"{folder.path}: has runs of fedsim 0.3, which cannot be resumed; {ELSEWHERE}")
    if not is_dry:
        folder.make_directory()
    positions = {run_id(config): position for position, config in enumerate(plan.runs)}
    digests = {choice: dataset_digest(dataset) for choice, dataset in plan.datasets.items()}
    current = environment()
    with nullcontext() if is_dry else folder.lock.hold(wait=True):
        known = folder.groups() if folder.is_occupied() else []
        # Later than all others, whatever the clocks of other computers say.
        created = max([time.time(), *(group.record.created + 1e-3 for group in known)])
        completed = {group: group.read_completion().rounds for group in known}
        latest = _latest(known, completed, {id_: plan.runs[i].server.num_rounds for id_, i in positions.items()})
        missing, incomplete = _find_missing(
            folder.path, plan, list(positions), completed, latest, digests, force, allow_mismatch
        )
        if not (force or allow_mismatch):
            shown = list(dict.fromkeys(group for id_, (group, _) in latest.items() if positions[id_] not in missing))
            check_environment(folder.path, known, shown, current, bool(missing or incomplete))
        num_again = sum(positions[id_] in missing for id_ in latest)
        if num_again and not force:
            log.warning(f"{folder.path}: computed again from the start: {count(num_again, 'run')}")
        runs = [missing.get(position, config) for position, config in enumerate(plan.runs)]
        changed: dict[GroupFolder, Record] = {}  # written when nothing can fail any more
        groups = [_resume(group, num, plan, runs, positions, current, changed) for group, num in incomplete.items()]
        plan, ids = replace(plan, runs=runs), list(positions)
        new = with_groups_of(plan, list(missing))
        fitted = new if is_dry else fit(new)
        for stored_group, record in ({} if is_dry else changed).items():
            stored_group.write_record(record)
        for group in [] if is_dry else fitted.groups:
            name = section_name(plan.runs[group.runs[0]].server.aggregator)
            added = folder.add_group(name, _record(group, ids, digests, created, current))
            groups.append(replace(group, folder=added.path.name))
        if is_dry:
            groups += new.groups
        else:
            folder.write_text(f"configs/{plan.experiment.name}-{plan.experiment.digest()}.toml", plan.experiment.dump())
    # A run of two groups that are resumed has the rounds of the longer one.
    groups = [plan.group(group.runs, group.layout, group.folder) for group in groups]
    return replace(plan, groups=sorted(groups, key=lambda group: min(group.runs)))


def _find_missing(
    path: Path,
    plan: Plan,
    ids: Sequence[str],
    completed: Mapping[GroupFolder, int],
    latest: Mapping[str, tuple[GroupFolder, dict[str, Any]]],
    digests: Mapping[Settings, str],
    force: bool,
    allow_mismatch: bool,
) -> tuple[dict[int, Config], dict[GroupFolder, int]]:
    """The runs that are to be computed in new groups, by position; the groups to be resumed, and up to which round.

    Runs are computed again for more rounds if no final states were saved, or to record more. `force` computes all.
    `completed` has the rounds of each group of the folder, `latest` the groups of the plan's runs. Raises
    `RunFolderError` if data or plug-ins have changed.
    """
    files = factories.plugin_files(plan.runs)
    is_locked = cache(lambda group: group.lock.is_held())  # once a group
    changes: dict[GroupFolder, str] = {}
    # Of what no group has, other versions are older ones; also those of runs that are not asked for.
    new_files = {name: d for name, d in files.items() if all(group.record.files.get(name) != d for group in completed)}
    new_data = {choice: d for choice, d in digests.items() if all(group.record.data != d for group in completed)}
    changed = next(filter(None, (_older_input(group.record, new_data, new_files) for group in completed)), "")

    def check(changed: str) -> None:
        if changed and not (force or allow_mismatch):
            raise RunFolderError(
                f"{path}: {changed} has changed since its runs were computed; restore it, add --allow-mismatch to "
                f"compute only missing runs with the new one, or --force to compute these again, or {ELSEWHERE}"
            )

    check(changed)
    missing: dict[int, Config] = {}
    resumed: dict[GroupFolder, int] = {}
    for position, config in enumerate(plan.runs):
        num_rounds = config.server.num_rounds
        if ids[position] not in latest:
            missing[position] = config
            continue
        group, run = latest[ids[position]]
        if (force or num_rounds > run[ROUNDS]) and is_locked(group):
            raise RunFolderError(f"{path}: {group.lock.describe_holder()}; stop that first, or wait for its end")
        if config.record.models and num_rounds < run[ROUNDS]:
            raise RunFolderError(
                f"{path}: its runs have {run[ROUNDS]} rounds, and models are those after the last one; {ELSEWHERE}"
            )
        longest = max(num_rounds, run[ROUNDS])
        if not force:
            if group not in changes:
                has_same_data = group.record.data == digests[data_choice(config)]
                changes[group] = _edited_file(group, files) if has_same_data else "the data set"
            check(changes[group])
            if (is_recorded := has_all_of(run, flatten(config))) and completed[group] >= num_rounds:
                continue
            has_no_states = completed[group] == run[ROUNDS] and not has_checkpoint(group.checkpoints)
            if is_recorded and not changes[group] and not has_no_states:
                if group not in resumed:
                    others = [_read_config(plan, group, run) for run in group.record.runs if run["id"] not in latest]
                    changes[group] = _edited_file(group, factories.plugin_files(others))
                    check(changes[group])
                if not changes[group]:
                    resumed[group] = max(longest, resumed.get(group, 0))
                    continue
        missing[position] = _merge(config, run, longest, config.record.final_states)
    return missing, resumed


def _edited_file(group: GroupFolder, files: Mapping[str, str]) -> str:
    """The plug-in of a group that is another one in `files`, by digest; empty: none is."""
    return next((name for name, digest in group.record.files.items() if files.get(name, digest) != digest), "")


def _older_input(record: Record, new_data: Mapping[Settings, str], new_files: Mapping[str, str]) -> str:
    """The plug-in, or data, of which a stored group had another version than these new ones; empty: of none."""
    for name in record.files:
        if name in new_files:
            return name
    value = lambda key: hashable(record.runs[0].get(key, LATER.get(key)))
    has_choice = any(all(value(key) == new for key, new in choice) for choice in new_data)
    return "the data set" if has_choice else ""


def _latest(
    known: Sequence[GroupFolder], completed: Mapping[GroupFolder, int], wanted: Mapping[str, int]
) -> dict[str, tuple[GroupFolder, dict[str, Any]]]:
    """The latest group that has each run, and its row there.

    If an earlier one has the rounds that are `wanted`, only one that replaces it, or has more, counts: none that
    records less.
    """
    latest: dict[str, tuple[GroupFolder, dict[str, Any]]] = {}
    for group in known:
        for run in (run for run in group.record.runs if run["id"] in wanted):
            before, row = latest.get(run["id"], (group, run))
            is_enough = completed[before] >= wanted[run["id"]]
            if is_enough and run[ROUNDS] <= row[ROUNDS] and has_more_than(row, run):
                continue
            if not is_enough or run[ROUNDS] == row[ROUNDS] or completed[group] > completed[before]:
                latest[run["id"]] = group, run
    return latest


def _merge(config: Config, run: Mapping[str, Any], num_rounds: int, final_states: bool) -> Config:
    """The configuration with these rounds, which also records what the stored `run` does."""
    stored = {key.removeprefix("record."): value for key, value in run.items() if key.startswith("record.")}
    record = replace(config.record.with_all_of(stored), final_states=final_states)
    return replace(config, server=replace(config.server, num_rounds=num_rounds), record=record)


def _resume(
    group: GroupFolder,
    num_rounds: int,
    plan: Plan,
    runs: list[Config],
    positions: dict[str, int],
    current: dict[str, Any],
    changed: dict[GroupFolder, Record],
) -> Group:
    """The group of a plan that continues a stored one, with its layout, up to `num_rounds`.

    Those of its runs that `runs` lack are added there, and to `positions`. All are recorded as before; final states
    if the plan asks for them. `changed` gets what is stored of the group then.
    """
    record, layout, machine = group.record, Layout(**group.record.layout), plan.machine
    if layout.num_devices > machine.num_devices:
        needed = f"{layout.num_devices} devices, got {machine.num_devices}"
        raise RunFolderError(f"{group.path}: its layout needs {needed}; {ELSEWHERE}")
    if layout.num_devices % machine.num_processes:
        number = machine.num_processes
        raise RunFolderError(f"{group.path}: {number} processes cannot share its layout evenly; {ELSEWHERE}")
    for run in record.runs:
        if run["id"] not in positions:
            positions[run["id"]] = len(runs)
            runs.append(_read_config(plan, group, run))
    members = [positions[run["id"]] for run in record.runs]
    final_states = any(runs[position].record.final_states for position in members)
    for position, run in zip(members, record.runs, strict=True):
        config = runs[position]  # which another group may have, too, with more rounds
        runs[position] = _merge(config, run, max(num_rounds, config.server.num_rounds), final_states)
    rows = [run | {ROUNDS: num_rounds, "record.final_states": final_states} for run in record.runs]
    environments = record.environments if current in record.environments else [*record.environments, current]
    if (new := msgspec.structs.replace(record, runs=rows, environments=environments)) != record:
        changed[group] = new
    return replace(plan, runs=runs).group(members, layout, group.path.name)


def _read_config(plan: Plan, group: GroupFolder, run: Mapping[str, Any]) -> Config:
    """The configuration of a stored run. Settings of a plug-in that the plan does not have are unknown."""
    schema, remedy = plan.experiment.schema, "run the configuration of its other runs first"
    try:
        config = schema.resolve({key: value for key, value in run.items() if key in schema.fields})
    except ConfigError as error:
        raise RunFolderError(f"{group.path}: {remedy}: {error}") from None
    if run_id(config) != run["id"]:
        raise RunFolderError(f"{group.path}: {remedy}")
    return config


def _record(
    group: Group, ids: Sequence[str], digests: Mapping[Settings, str], created: float, current: dict[str, Any]
) -> Record:
    """What is stored of a new group."""
    number, names = group.dataset.num_clients, group.dataset.client_names
    runs = [
        {"id": ids[position], "position": position, "num_clients": number} | flatten(config)
        for position, config in zip(group.runs, group.configs, strict=True)
    ]
    data, files = digests[data_choice(group.configs[0])], factories.plugin_files(group.configs)
    return Record(created, runs, asdict(group.layout), [current], data, files, names[:number])
