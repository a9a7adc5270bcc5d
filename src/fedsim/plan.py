"""What an experiment comes to, fixed before its first row: its runs, the groups that share a program, their layouts."""

from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from fedsim import build, memory
from fedsim.config import Config, DataConfig
from fedsim.configfile import Experiment
from fedsim.layout import Layout, choose_layout
from fedsim.sweep import Group, group_runs
from fedsim.types import FederatedDataset


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment and how they are grouped; fixed before the first row is written."""

    experiment: Experiment
    runs: list[Config]
    groups: list[Group]
    datasets: dict[DataConfig, FederatedDataset]


def make_plan(experiment: Experiment) -> Plan:
    """Checks every run, loads the data sets, groups the runs and chooses widths."""
    for config in experiment.points():
        build.check_names(config)
    runs = experiment.runs()
    datasets = {config: build.dataset(config) for config in {run.data: None for run in runs}}
    for config in runs:
        build.check_fit(config, datasets[config.data])
    groups = []
    for members in group_runs(runs):
        config = runs[members[0]]
        groups.append(Group(members, _layout(config, len(members), datasets[config.data])))
    return Plan(experiment, runs, groups, datasets)


def _layout(config: Config, num_runs: int, dataset: FederatedDataset) -> Layout:
    """The layout of a group on the devices at hand."""
    return choose_layout(
        config,
        num_runs,
        build.num_params(config, dataset),
        np.asarray(dataset.train.counts),
        partial(memory.step_bytes, build.task(config, dataset), dataset.train.x[0]),
        backend=jax.default_backend(),
        num_devices=jax.device_count(),
        memory=memory.available(),
    )
