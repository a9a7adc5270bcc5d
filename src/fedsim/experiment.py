"""The host's loop over an experiment: plan, compile, chunks, evaluation, writing, progress."""

import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedsim
from fedsim import build
from fedsim.config import Config, DataConfig
from fedsim.configfile import Experiment
from fedsim.errors import RunFolderError
from fedsim.keys import flatten
from fedsim.rows import client_rows, round_rows
from fedsim.store import RunFolder
from fedsim.sweep import Group, Programs, choose_widths, group_runs, prepare
from fedsim.types import ClientData, FederatedDataset, RoundRecord

SECONDS = ("seconds_compiling", "seconds_running")
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
        num_params = build.num_params(config, datasets[config.data])
        groups.append(Group(members, *choose_widths(config, len(members), num_params, jax.default_backend())))
    return Plan(experiment, runs, groups, datasets)


def run(plan: Plan, path: Path, progress: Progress, force: bool = False) -> RunFolder:
    """Runs the plan into the folder `path`; what an earlier start completed is kept.

    `force` starts over. Raises `RunFolderError` where the folder holds something else. The manifest's status is
    "complete" at the end and "incomplete" before, whatever happens.
    """
    folder = RunFolder(path)
    manifest = _open(folder, plan, force)
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
        write = lambda round_, rows, number=number: folder.write_part(number, round_, rows)
        entry |= run_group(plan, group, write, progress)
        entry |= {"complete": True, "num_parts": folder.count_parts(number)}
        folder.write_manifest(manifest)
    folder.join()
    totals = {name: sum(entry[name] for entry in manifest["groups"]) for name in SECONDS}
    folder.write_manifest(manifest | {"status": "complete"} | totals)
    return folder


def _keep(plan: Plan, group: Group, progress: Progress) -> None:
    progress.group(plan, group, "kept")
    progress.rounds(sum(plan.runs[position].server.num_rounds for position in group.runs))


def run_group(
    plan: Plan, group: Group, write: Callable[[int, dict[str, dict[str, Any]]], None], progress: Progress
) -> dict[str, float]:
    """Compiles and runs one group; `write(round, rows)` gets its rows. Returns the seconds compiling and running."""
    configs = [plan.runs[position] for position in group.runs]
    config, dataset = configs[0], plan.datasets[configs[0].data]
    progress.group(plan, group, "compiling")
    shared: ClientData = jax.tree.map(jnp.asarray, dataset.train)
    test = jax.tree.map(jnp.asarray, (dataset.x_test, dataset.y_test, dataset.test_clients))
    inputs = prepare(configs, shared)
    corrupted = np.asarray(inputs.changes.corrupted)
    counts = np.asarray(shared.counts if inputs.changes.counts is None else inputs.changes.counts)
    counts = np.broadcast_to(counts, corrupted.shape)

    max_rounds = max(1, min(config.server.eval_every, config.server.num_rounds))
    simulation = build.simulation(config, dataset, group.client_width)
    programs = Programs(simulation, group.run_width, max_rounds, dataset.num_test_clients)
    started = time.perf_counter()
    shapes = jax.eval_shape(programs.init, shared, inputs)
    init = jax.jit(programs.init).lower(shared, inputs).compile()
    chunk = jax.jit(programs.chunk, donate_argnums=0).lower(shapes, shared, inputs, jnp.int32(0)).compile()
    measure = jax.jit(programs.measure).lower(shapes, inputs, *test).compile()
    compiled = time.perf_counter()

    progress.group(plan, group, "running")
    states = init(shared, inputs)
    done = 0
    records: RoundRecord | None = None
    while True:
        metrics, alpha = jax.device_get(measure(states, inputs, *test))
        rows = {"rounds": round_rows(configs, group.runs, done, metrics, records, corrupted)}
        if records is not None and config.record.clients != "none":
            last_only = config.record.clients == "evaluated"
            rows["clients"] = client_rows(group.runs, done, records, alpha, counts, corrupted, last_only)
        write(done, rows)
        if done == config.server.num_rounds:
            break
        num_rounds = min(max_rounds, config.server.num_rounds - done)
        states, on_device = chunk(states, shared, inputs, jnp.int32(num_rounds))
        records = jax.tree.map(lambda a, n=num_rounds: a[:, :n], jax.device_get(on_device))
        done += num_rounds
        progress.rounds(num_rounds * len(configs))
    return dict(zip(SECONDS, (compiled - started, time.perf_counter() - compiled), strict=True))


def _open(folder: RunFolder, plan: Plan, force: bool) -> dict[str, Any]:
    """The manifest to go on with: the folder's own if it is of this very plan, else a new one."""
    manifest = new_manifest(plan)
    if folder.is_occupied():
        found = folder.read_manifest()
        differs = [key for key in ("config", "versions", "device", "plan") if found[key] != manifest[key]]
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
        "plan": [asdict(group) | {"runs": list(group.runs)} for group in plan.groups],
        "groups": [{"complete": False} for _ in plan.groups],
    }
