"""The host's loop over an experiment: plan, compile, chunks, evaluation, writing, progress."""

import platform
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fedsim
from fedsim import build, memory
from fedsim.config import Config, DataConfig
from fedsim.configfile import Experiment
from fedsim.errors import RunFolderError
from fedsim.execute import SECONDS, run_group
from fedsim.keys import flatten
from fedsim.layout import Layout, choose_layout
from fedsim.store import RunFolder
from fedsim.sweep import Group, group_runs
from fedsim.types import FederatedDataset

VERSIONED = ("jax", "jaxlib", "flax", "optax", "numpy")


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment and how they are grouped; fixed before the first row is written."""

    experiment: Experiment
    runs: list[Config]
    groups: list[Group]
    datasets: dict[DataConfig, FederatedDataset]


class Progress:
    """What a user sees while an experiment runs; this one shows nothing."""

    def start(self, plan: Plan) -> None:
        """Before anything is computed."""

    def group(self, plan: Plan, group: Group, status: str) -> None:
        """`group` is "compiling", "running" or "kept" from an earlier start."""

    def rounds(self, num_rounds: int) -> None:
        """Rounds done, over all runs, since the last call."""


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


def run(plan: Plan, path: Path, progress: Progress, force: bool = False) -> RunFolder:
    """Runs the plan into the folder `path`; what an earlier start completed is kept, and so are its layouts.

    `force` starts over. Raises `RunFolderError` where the folder holds something else. The manifest's status is
    "complete" at the end and "incomplete" before, whatever happens.
    """
    folder = RunFolder(path)
    manifest = _open(folder, plan, force)
    plan = replace(plan, groups=[read_group(entry) for entry in manifest["plan"]])
    progress.start(plan)
    if manifest["status"] == "complete" and folder.is_joined():
        for group in plan.groups:
            _keep(plan, group, progress)
        return folder
    for number, group in enumerate(plan.groups):
        entry = manifest["groups"][number]
        if entry["complete"] and folder.count_parts(number) == entry["num_parts"]:
            _keep(plan, group, progress)
            continue
        configs = [plan.runs[position] for position in group.runs]
        seconds = run_group(
            configs,
            plan.datasets[configs[0].data],
            group,
            write=partial(folder.write_part, number),
            write_model=folder.write_model,
            show_status=partial(progress.group, plan, group),
            show_rounds=progress.rounds,
        )
        entry |= seconds | {"complete": True, "num_parts": folder.count_parts(number)}
        folder.write_manifest(manifest)
    folder.join()
    totals = {name: sum(entry[name] for entry in manifest["groups"]) for name in SECONDS}
    folder.write_manifest(manifest | {"status": "complete"} | totals)
    return folder


def _keep(plan: Plan, group: Group, progress: Progress) -> None:
    progress.group(plan, group, "kept")
    progress.rounds(sum(plan.runs[position].server.num_rounds for position in group.runs))


def _open(folder: RunFolder, plan: Plan, force: bool) -> dict[str, Any]:
    """The manifest to go on with: the folder's own if it is of this very plan, else a new one."""
    manifest = new_manifest(plan)
    if folder.is_occupied():
        found = folder.read_manifest()
        differs = [key for key in ("config", "versions", "device") if found[key] != manifest[key]]
        if not force and differs:
            raise RunFolderError(
                f"{folder.path}: holds results with another {', '.join(differs)}; choose another --out, or add --force "
                "to start over"
            )
        if not force:
            return found
    folder.create(manifest)
    folder.write_text("config.toml", plan.experiment.dump())
    return manifest


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
        "groups": [{"complete": False} for _ in plan.groups],
    }


def read_group(entry: dict[str, Any]) -> Group:
    """A group of a manifest's plan."""
    return Group(tuple(entry["runs"]), Layout(**entry["layout"]))
