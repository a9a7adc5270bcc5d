"""What an experiment comes to, fixed before its first row: its runs, the groups that share a program, their layouts."""

from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from fedsim import build, memory
from fedsim.config import Config, DataConfig
from fedsim.configfile import Experiment
from fedsim.estimate import run_bytes
from fedsim.layout import SHARE_OF_MEMORY, Layout, choose_layout
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
        dataset = datasets[config.data]
        for part in _fitting(members, max(run_bytes([runs[i] for i in members], dataset))):
            groups.append(Group(part, _layout(config, len(part), dataset)))
    return Plan(experiment, runs, groups, datasets)


def _fitting(members: tuple[int, ...], bytes_each: int) -> list[tuple[int, ...]]:
    """`members` in as few, equal parts as let each part's runs fit into half of the memory."""
    available = memory.available() * (jax.local_device_count() if jax.default_backend() == "cpu" else 1)
    most = max(1, int(SHARE_OF_MEMORY * available) // bytes_each)
    return [tuple(part.tolist()) for part in np.array_split(members, -(-len(members) // most))]


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
