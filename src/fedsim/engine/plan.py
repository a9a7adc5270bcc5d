"""What an experiment comes to, fixed before its first row: its runs, the groups that share a program, their layouts.

Seeds, corruption and its fraction, learning rates and all traced settings are data: runs that differ in nothing else
are a group, and compile once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from fedsim.config.resolve import data_choice, settings_under, traced_settings
from fedsim.config.schema import Config, CorruptionConfig, DataChoice
from fedsim.config.toml import Experiment
from fedsim.core.types import FederatedDataset
from fedsim.engine import build, memory
from fedsim.engine.compiling import GroupPrograms
from fedsim.engine.estimate import check_model, run_bytes
from fedsim.engine.fitting import widest
from fedsim.engine.layout import SHARE_OF_MEMORY, Layout, Machine, choose_layout
from fedsim.engine.limits import check_excluded, check_limits


@dataclass(frozen=True)
class Group:
    """Runs that share a program, and how they are laid out."""

    runs: tuple[int, ...]  # positions in the experiment's list of runs
    layout: Layout


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment and how they are grouped; fixed before the first row is written."""

    experiment: Experiment
    runs: list[Config]
    groups: list[Group]
    datasets: dict[DataChoice, FederatedDataset]
    notes: tuple[str, ...] = ()  # what can be run, but should be known

    def configs(self, group: Group) -> list[Config]:
        """The runs of a group."""
        return [self.runs[position] for position in group.runs]

    def dataset(self, group: Group) -> FederatedDataset:
        """The data set that the runs of a group share."""
        return self.datasets[data_choice(self.runs[group.runs[0]])]

    def num_rounds(self, group: Group) -> int:
        """Rounds over all runs of a group."""
        return sum(config.server.num_rounds for config in self.configs(group))

    def title(self, group: Group) -> str:
        """For example "arfl, 15 runs"."""
        rule = self.runs[group.runs[0]].server.aggregator.rpartition(":")[2]
        number = len(group.runs)
        return f"{rule}, {number} runs" if number > 1 else f"{rule}, 1 run"


def make_plan(experiment: Experiment, machine: Machine | None = None) -> Plan:
    """Checks every run, loads the data sets, groups the runs and chooses layouts by rule.

    For the devices at hand, or for a `machine` that need not be there. Nothing is compiled (`fitted` does).
    """
    machine = machine or Machine.here()
    runs = experiment.runs()
    example_of = {data_choice(config): config for config in reversed(runs)}
    datasets = {choice: build.dataset(config) for choice, config in reversed(example_of.items())}
    notes = [note for dataset in datasets.values() for note in dataset.notes]
    with build.own_errors(runs):
        for config in runs:
            build.check_fit(config, datasets[data_choice(config)])
        for members in group_runs(runs):
            configs = [runs[position] for position in members]
            dataset = datasets[data_choice(configs[0])]
            build.check_outputs(configs[0], dataset)
            check_model(configs[0], dataset, machine.memory)
            notes += [*check_limits(configs, dataset), *check_excluded(configs, dataset.num_clients)]
    groups = _groups(runs, range(len(runs)), datasets, machine)
    return Plan(experiment, runs, groups, datasets, tuple(dict.fromkeys(notes)))


def behind(plan: Plan, begun: Sequence[int]) -> Plan:
    """The plan with the runs at the positions `begun` in front, in that order, and with groups of the others alone."""
    others = sorted(set(range(len(plan.runs))) - set(begun))
    runs = [plan.runs[position] for position in (*begun, *others)]
    groups = _groups(runs, range(len(begun), len(runs)), plan.datasets, Machine.here())
    return replace(plan, runs=runs, groups=groups)


def _groups(
    runs: Sequence[Config], positions: Sequence[int], datasets: dict[DataChoice, FederatedDataset], machine: Machine
) -> list[Group]:
    """The groups of those `runs` that are at `positions`."""
    groups = []
    with build.own_errors(runs):
        for members in group_runs([runs[position] for position in positions]):
            configs = [runs[positions[member]] for member in members]
            dataset = datasets[data_choice(configs[0])]
            for part in _fitting(members, max(run_bytes(configs, dataset)), machine):
                chosen = tuple(positions[member] for member in part)
                groups.append(Group(chosen, _layout([runs[position] for position in chosen], dataset, machine)))
    return groups


class Program(NamedTuple):
    """What of a run shapes its program: two runs share one if theirs are equal."""

    config: Config  # with all that is data at its default
    changes_inputs: bool  # each run has inputs of its own; otherwise all share them


def program_of(config: Config) -> Program:
    """`config` without what is data."""
    of_corruption = dict(settings_under(config, "corruption.kind"))
    data = traced_settings(config)
    presence = lambda number: None if number is None else 0.0  # whether there is one shapes the program
    momentum, weight_decay = presence(config.client.momentum), presence(config.client.weight_decay)
    kept = ((key, "data" if key in data else value) for key, value in config.settings if key not in of_corruption)
    static = replace(
        config,
        name="fedsim",
        seed=0,
        corruption=CorruptionConfig(),
        client=replace(config.client, learning_rate=0.1, momentum=momentum, weight_decay=weight_decay),
        server=replace(config.server, learning_rate=1.0),
        settings=tuple(kept),
    )
    return Program(static, "x" in build.corruption(config).changes)


def group_runs(configs: Sequence[Config]) -> list[tuple[int, ...]]:
    """The positions of the runs that share a program, in order of their first."""
    groups: dict[Program, list[int]] = {}
    for position, config in enumerate(configs):
        groups.setdefault(program_of(config), []).append(position)
    return [tuple(runs) for runs in groups.values()]


def _fitting(members: tuple[int, ...], bytes_each: int, machine: Machine) -> list[tuple[int, ...]]:
    """`members` in as few, equal parts as let each part's runs fit into half of the memory."""
    available = machine.memory * (machine.num_devices if machine.backend == "cpu" else 1)
    most = max(1, int(SHARE_OF_MEMORY * available) // bytes_each)
    return [tuple(part.tolist()) for part in np.array_split(members, -(-len(members) // most))]


def _layout(configs: Sequence[Config], dataset: FederatedDataset, machine: Machine) -> Layout:
    """The layout of a group, by rule."""
    return choose_layout(
        configs[0],
        len(configs),
        build.num_params(configs[0], dataset),
        np.asarray(dataset.train.counts),
        partial(
            memory.step_bytes,
            build.task(configs[0], dataset, machine.backend),
            dataset,
            optimizer=build.client_optimizer(configs[0])(build.hparams(configs[0])),
        ),
        machine,
    )


def fitted(plan: Plan) -> Plan:
    """The plan to write down: on accelerators each group has the widest layout that the compiler says to fit.

    A width that the configuration gives stays as it is.
    """
    machine = Machine.here()
    if machine.backend == "cpu":
        return plan

    def fit(group: Group) -> Group:
        configs, dataset = plan.configs(group), plan.dataset(group)
        needs = lambda layout: GroupPrograms(configs, dataset, layout).needs()
        with build.own_errors(configs):
            return replace(group, layout=widest(narrower(group.layout, configs[0]), needs, machine.memory)[0])

    return replace(plan, groups=[fit(group) for group in plan.groups])


def narrower(layout: Layout, config: Config) -> list[Layout]:
    """`layout` and those narrower ones that keep the widths which the configuration gives, widest first."""
    keeps = [key for key in ("client_width", "run_width") if getattr(config.engine, key) != "auto"]
    return [layout, *layout.narrower(keeps)]
