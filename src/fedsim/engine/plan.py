"""An experiment's plan, fixed before its first row: its runs, their groups and layouts.

Seeds, corruption and its fraction, learning rates and all traced settings are data: runs that differ in nothing else
are a group. `engine.families` finds the groups that share a program.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import jax
import numpy as np

from fedsim.config.clients import lists_names, position_notes
from fedsim.config.components import distinct_runs, forget_plugins, without_effect
from fedsim.config.experiment import Experiment
from fedsim.config.roles import data_choice
from fedsim.config.schema import Config, Settings
from fedsim.core.types import FederatedDataset
from fedsim.engine import build, factories, memory
from fedsim.engine.checks import check_group, note_own_models
from fedsim.engine.data import load_dataset
from fedsim.engine.families import Family, Group, group_runs, layout_key, make_families
from fedsim.engine.layout import SHARE_OF_MEMORY, Layout, Machine, choose_layout
from fedsim.engine.memory import run_bytes
from fedsim.engine.model import model_shapes, num_params
from fedsim.engine.streamed.buffers import placement_notes, stays_on_host, with_buffers
from fedsim.errors import ConfigError


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment and how they are grouped."""

    experiment: Experiment
    runs: list[Config]
    groups: list[Group]
    """In the order in which they run."""
    datasets: dict[Settings, FederatedDataset]
    """The data sets of the runs, by `data_choice`."""
    machine: Machine
    """The devices that it is for."""
    warnings: tuple[str, ...] = ()
    """Keys without effect."""
    notes: tuple[str, ...] = ()
    """What users should know, although it can be run."""

    def group(self, runs: Sequence[int], layout: Layout, folder: str = "") -> Group:
        """The group of the runs at these positions."""
        configs = [self.runs[position] for position in runs]
        return Group(tuple(runs), configs, self.datasets[data_choice(configs[0])], layout, folder)

    def describe(self, number: int, status: str) -> str:
        """For example "group 2/7 arfl, 15 runs: compiling"."""
        return f"group {number + 1}/{len(self.groups)} {self.groups[number]}: {status}"

    @cached_property
    def total_rounds(self) -> int:
        """Rounds over all runs."""
        return sum(config.server.num_rounds for config in self.runs)

    @cached_property
    def families(self) -> list[Family]:
        """The family of each group; groups with the same one share a compiled program."""
        with factories.plugin_errors(self.runs):
            return make_families(self.groups, self.machine.memory)


def make_plan(experiment: Experiment, machine: Machine | None = None) -> Plan:
    """Loads the data sets, checks every run, groups the runs and chooses layouts by rule; compiles nothing.

    The plan is for the devices of this machine, or for another `machine`. Raises `ConfigError` or `DataError` if a run
    is not possible.
    """
    forget_plugins()
    runs = experiment.runs()
    experiment.check_claims()
    with factories.plugin_errors(runs):
        grouped = group_runs(runs)
    datasets: dict[Settings, FederatedDataset] = {}
    for config in (runs[members[0]] for members in grouped):
        for key, reason in without_effect(config).items():
            raise ConfigError(f"{key}: has no effect: {reason}")
        if (choice := data_choice(config)) not in datasets:
            datasets[choice] = load_dataset(config, experiment.data)
    listing = (run for run in runs if run.corruption.clients or run.attack.clients)
    notes = [note for run in listing for note in position_notes(run, datasets[data_choice(run)].client_names)]
    if any(map(lists_names, runs)):
        runs = experiment.runs(lambda run: datasets[data_choice(run)].client_names)
        grouped = group_runs(runs)
    machine = machine or Machine.current()  # what has been loaded is no longer free
    plan = Plan(experiment, runs, [], datasets, machine)
    notes += [note for dataset in datasets.values() for note in dataset.notes]
    with factories.plugin_errors(runs):
        for members in grouped:
            configs = [runs[position] for position in members]
            notes += check_group(configs, datasets[data_choice(configs[0])], machine.memory)
        groups = _make_groups(plan, grouped)
    for group in groups:
        notes += placement_notes(group.configs[0], group.dataset, group.layout, machine)
        notes += note_own_models(group.configs[0], group.dataset, group.layout)
    warnings = tuple(dict.fromkeys(experiment.unused_keys(runs)))
    return replace(plan, groups=groups, warnings=warnings, notes=tuple(dict.fromkeys(notes)))


def with_groups_of(plan: Plan, positions: Sequence[int]) -> Plan:
    """The plan with groups of the runs at these positions only."""
    with factories.plugin_errors(plan.runs):
        grouped = [[positions[m] for m in members] for members in group_runs([plan.runs[p] for p in positions])]
        return replace(plan, groups=_make_groups(plan, grouped))


def _make_groups(plan: Plan, grouped: Sequence[Sequence[int]]) -> list[Group]:
    """The groups of the runs at these positions, in parts whose runs fit into half of the memory."""
    machine = plan.machine
    available = SHARE_OF_MEMORY * machine.memory * (machine.num_devices if machine.backend == "cpu" else 1)
    groups: list[Group] = []
    layouts: dict[Hashable, Layout] = {}  # chosen once, so that groups on different splits can share a program
    for positions in grouped:
        configs = [plan.runs[position] for position in positions]
        dataset = plan.datasets[data_choice(configs[0])]
        is_on_host = stays_on_host(configs, dataset, machine)
        max_runs = max(1, int(available) // max(run_bytes(distinct_runs(configs), dataset, is_on_host)))
        form = layout_key(configs, dataset)
        for part in np.array_split(positions, -(-len(positions) // max_runs)):
            key = (form, len(part))
            if key not in layouts:
                layouts[key] = _choose_layout(configs[0], len(part), dataset, machine)
            layout = with_buffers(layouts[key], configs, dataset, machine) if is_on_host else layouts[key]
            groups.append(plan.group(part.tolist(), layout))
    return groups


def _choose_layout(config: Config, num_runs: int, dataset: FederatedDataset, machine: Machine) -> Layout:
    """The layout of `num_runs` runs like `config`.

    "auto" never divides a batch whose statistics, of batch normalization, change with its examples.
    """
    if config.engine.micro_batch == "auto" and jax.tree.leaves(model_shapes(config, dataset).statistics):
        config = replace(config, engine=replace(config.engine, micro_batch=config.client.batch_size))
    optimizer = build.client_optimizer(config, build.hparams(config)).transformation
    task = build.task(config, dataset, machine.backend)
    # No client has a larger batch than it has examples.
    step_bytes = lambda size: memory.step_bytes(task, dataset, min(size, dataset.max_num_examples), optimizer)
    num_examples = np.asarray(dataset.train.num_examples)
    return choose_layout(config, num_runs, num_params(config, dataset), num_examples, step_bytes, machine)
