"""Which runs of a plan a run folder has, and groups for all others."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import msgspec

from fedsim.config.components import flatten
from fedsim.config.roles import data_choice, run_id
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
        # Later than all others, whatever the clocks of other computers say.
        created = max([time.time(), *(group.record.created + 1e-3 for group in known)])
        opening = _Opening(folder, plan, created)
        missing, incomplete, repeated = opening.find_missing(known, force, allow_mismatch)
        if not (force or allow_mismatch):
            opening.check_environment(known, bool(missing or incomplete or repeated))
        for position, num_rounds in missing.items():
            opening.set_rounds(position, num_rounds)
        resumed = [opening.resume(group, num_rounds) for group, num_rounds in incomplete.items()]
        again = [opening.stored_group(group, num_rounds) for group, num_rounds in repeated.items()]
        plan = replace(plan, runs=opening.runs)
        added = [*again, *fit(with_groups_of(plan, list(missing))).groups]
        names = folder.add_groups((_name(plan, group), opening.record(group)) for group in added)
        folder.write_config(f"{plan.experiment.name}-{plan.experiment.digest()}", plan.experiment.dump())
    groups = [*resumed, *(replace(group, folder=name) for group, name in zip(added, names, strict=True))]
    return replace(plan, groups=sorted(groups, key=lambda group: min(group.runs)))


class _Opening:
    """A folder that is opened for a plan."""

    def __init__(self, folder: RunFolder, plan: Plan, created: float) -> None:
        self._folder, self._plan, self._created = folder, plan, created
        self.runs = list(plan.runs)
        """The plan's runs, then others of the groups that are resumed."""
        self._ids = list(map(run_id, plan.runs))
        self._positions = {run: position for position, run in enumerate(self._ids)}
        self._data = {choice: dataset_digest(dataset) for choice, dataset in plan.datasets.items()}
        self._files = factories.plugin_files(plan.runs)
        self._environment = environment()

    def find_missing(
        self, known: Sequence[GroupFolder], force: bool, allow_mismatch: bool
    ) -> tuple[dict[int, int], dict[GroupFolder, int], dict[GroupFolder, int]]:
        """Positions of runs that no group has, groups to be resumed, groups to be repeated; the rounds of each.

        Groups are repeated for more rounds if their final states were not saved. `force` finds no run in any group.
        Raises `RunFolderError` if data or plug-ins have changed.
        """
        path = self._folder.path
        latest = {run["id"]: (group, run) for group in known for run in group.record.runs}
        completed = {group: group.rounds_complete() for group in known}
        is_locked, has_checkpoint = cache(GroupFolder.is_locked), cache(GroupFolder.has_checkpoint)  # once a group
        changed_inputs: dict[GroupFolder, str] = {}
        missing: dict[int, int] = {}
        resumed: dict[GroupFolder, int] = {}
        repeated: dict[GroupFolder, int] = {}
        for position, config in enumerate(self.runs):
            num_rounds = config.server.num_rounds
            group, run = latest.get(self._ids[position], (None, {}))
            if group is not None and (force or num_rounds > run[ROUNDS]) and is_locked(group):
                raise RunFolderError(f"{path}: {group.describe_holder()}; stop that first")
            if group is None or force:
                missing[position] = num_rounds
                continue
            if group not in changed_inputs:
                changed_inputs[group] = self._changed_inputs(group.record, config)
            changed = changed_inputs[group]
            if changed and not allow_mismatch:
                raise RunFolderError(
                    f"{path}: {changed} has changed since its runs were computed; restore it, add --allow-mismatch to "
                    f"compute only missing runs with the new one, {OR_ELSE}"
                )
            if config.record.models and num_rounds < run[ROUNDS]:
                raise RunFolderError(
                    f"{path}: has models after {run[ROUNDS]} rounds, not {num_rounds}; choose another --out"
                )
            longest, is_complete = max(num_rounds, run[ROUNDS]), completed[group] >= num_rounds
            if not _records(run, config) or (changed and not is_complete):
                missing[position] = longest
            elif not is_complete:
                is_lost = completed[group] == run[ROUNDS] and not has_checkpoint(group)  # the final state
                needed = repeated if is_lost else resumed
                needed[group] = max(longest, needed.get(group, 0))
        return missing, resumed, repeated

    def _changed_inputs(self, record: Record, config: Config) -> str:
        """The data set or the plug-in that has changed since a group was added; "" if none has."""
        if record.data != self._data[data_choice(config)]:
            return "the data set"
        return next((name for name, digest in record.files.items() if self._files.get(name, digest) != digest), "")

    def check_environment(self, known: Sequence[GroupFolder], is_pending: bool) -> None:
        """Raises `RunFolderError` if code, versions or devices have changed since the folder's runs were computed.

        If nothing is to be computed, only changed code matters.
        """
        path, current = self._folder.path, self._environment
        accepted = [before for group in known for before in group.record.environments]
        if not accepted or current in accepted:
            return
        before = accepted[-1]
        if all(other["source"] != current["source"] for other in accepted):
            sources = before["source"] or {}
            changed = [f"fedsim/{name}" for name, digest in current["source"].items() if sources.get(name) != digest]
            to = "compute missing ones" if is_pending else "show its rows"
            raise RunFolderError(
                f"{path}: fedsim's code has changed since its runs were computed ({', '.join(changed)}); add "
                f"--allow-mismatch to {to} all the same, {OR_ELSE}"
            )
        if is_pending:
            raise RunFolderError(
                f"{path}: versions or devices have changed since its runs were computed "
                f"({list_changes(before, current)}), so rows may differ in their last digits; add --allow-mismatch to "
                f"compute missing ones all the same, {OR_ELSE}"
            )

    def set_rounds(self, position: int, num_rounds: int) -> None:
        """Sets the rounds of a run."""
        config = self.runs[position]
        if config.server.num_rounds != num_rounds:
            self.runs[position] = replace(config, server=replace(config.server, num_rounds=num_rounds))

    def resume(self, group: GroupFolder, num_rounds: int) -> Group:
        """The group of a plan that continues a stored one; see `stored_group`."""
        resumed, record, current = self.stored_group(group, num_rounds), group.record, self._environment
        final_states = self.runs[resumed.runs[0]].record.final_states
        rows = [run | {ROUNDS: num_rounds, "record.final_states": final_states} for run in record.runs]
        environments = record.environments if current in record.environments else [*record.environments, current]
        changed = msgspec.structs.replace(record, runs=rows, environments=environments)
        if changed != record:
            group.write_record(changed)
        return resumed

    def stored_group(self, group: GroupFolder, num_rounds: int) -> Group:
        """The group of a plan that computes the runs of a stored one with its layout, up to `num_rounds`.

        Those of its runs that the plan lacks are added. All are recorded as before; final states also if the plan asks
        for them.
        """
        layout, machine = Layout(**group.record.layout), self._plan.machine
        if layout.num_devices > machine.num_devices:
            needed = f"{layout.num_devices} devices, got {machine.num_devices}"
            raise RunFolderError(f"{group.path}: its layout needs {needed}; choose another --out")
        if layout.num_devices % machine.num_processes:
            raise RunFolderError(
                f"{group.path}: {machine.num_processes} processes cannot share its layout evenly; choose another --out"
            )
        members = []
        for run in group.record.runs:
            if (position := self._positions.get(run["id"])) is None:
                position = self._positions[run["id"]] = len(self.runs)
                self._ids.append(run["id"])
                self.runs.append(self._read_config(group, run))
            members.append(position)
        final_states = any(self.runs[position].record.final_states for position in members)
        recorded = replace(self._read_config(group, group.record.runs[0]).record, final_states=final_states)
        for position in members:
            self.set_rounds(position, num_rounds)
            self.runs[position] = replace(self.runs[position], record=recorded)
        return Group(tuple(members), layout, group.path.name)

    def _read_config(self, group: GroupFolder, run: Mapping[str, Any]) -> Config:
        """The configuration of a stored run. Settings of a plug-in that the plan does not have are unknown."""
        schema, remedy = self._plan.experiment.schema, "run the configuration of its other runs first"
        try:
            config = schema.resolve({key: value for key, value in run.items() if key in schema.fields})
        except ConfigError as error:
            raise RunFolderError(f"{group.path}: {remedy}: {error}") from None
        if run_id(config) != run["id"]:
            raise RunFolderError(f"{group.path}: {remedy}")
        return config

    def record(self, group: Group) -> Record:
        """What is stored of a new group."""
        configs = [self.runs[position] for position in group.runs]
        num_clients = self._plan.datasets[data_choice(configs[0])].num_clients
        runs = [
            {"id": self._ids[position], "position": position, "num_clients": num_clients, **flatten(config)}
            for position, config in zip(group.runs, configs, strict=True)
        ]
        data, files = self._data[data_choice(configs[0])], factories.plugin_files(configs)
        return Record(self._created, runs, asdict(group.layout), [self._environment], data, files)


def _records(run: Mapping[str, Any], config: Config) -> bool:
    """Whether the stored `run` has all that `config` records, except final states."""
    record = config.record
    has_flags = all(run[f"record.{key}"] or not getattr(record, key) for key in ("losses", "models", "data"))
    return has_flags and CLIENTS.index(run["record.clients"]) >= CLIENTS.index(record.clients)


def list_changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """The first few keys whose values differ, for example "versions.jax was 0.10.2, is 0.12.0"."""
    changes = [f"{key} was {old}, is {new}" for key, old, new in find_differences(before, now)]
    more = [f"and {len(changes) - MAX_CHANGES} more"] if len(changes) > MAX_CHANGES else []
    return "; ".join([*changes[:MAX_CHANGES], *more])


def _name(plan: Plan, group: Group) -> str:
    """The start of the name of a new group's folder."""
    return section_name(plan.runs[group.runs[0]].server.aggregator)
