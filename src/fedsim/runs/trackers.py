"""Callbacks that send each run's curves to an experiment tracker: TensorBoard, Weights & Biases."""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fedsim.config.components import flatten
from fedsim.config.roles import run_id
from fedsim.config.schema import Config
from fedsim.errors import ConfigError, import_extra, pip_install
from fedsim.runs.callbacks import Callback, Evaluation, Start
from fedsim.runs.sweep import run_names

TRACKED = (
    "test_accuracy",
    "test_loss",
    "validation_accuracy",
    "validation_loss",
    "corrupted_weight",
    "malicious_weight",
    "backdoor_success",
)


class TrackerRun(NamedTuple):
    """A run of a tracker."""

    add: Callable[[dict[str, float], int], None]
    """Takes values by name, and the round."""
    end: Callable[[], None]


class Tracker(Callback):
    """Opens a run of the tracker for each run of the folder, and adds its values after each evaluation.

    `open_run` takes the run's configuration, its name, that of its group's folder, and the round from which its values
    are new.
    """

    def __init__(self, open_run: Callable[[Config, str, str, int], TrackerRun]) -> None:
        self._open_run = open_run
        self._runs: dict[int, TrackerRun] = {}
        self._configs: Sequence[Config] = ()

    def on_start(self, start: Start) -> None:
        self._group, self._start = start.group, start.after + 1
        if start.configs is not self._configs:
            self._configs = start.configs
            self._names = run_names(list(map(flatten, self._configs)), list(map(run_id, self._configs)))

    def after_evaluation(self, evaluation: Evaluation) -> None:
        rounds = evaluation.tables["rounds"]
        columns = [rounds["run"], rounds["round"], *(rounds[name] for name in TRACKED)]
        for run, round_, *values in zip(*columns, strict=True):
            numbers = dict(zip(TRACKED, map(float, values), strict=True))
            if run not in self._runs:
                self._runs[run] = self._open_run(self._configs[run], self._names[run], self._group, self._start)
            self._runs[run].add({name: v for name, v in numbers.items() if math.isfinite(v)}, int(round_))

    def on_end(self) -> None:
        for tracker_run in self._runs.values():
            tracker_run.end()
        self._runs.clear()


def tensorboard(folder: Path) -> Tracker:
    """TensorBoard's files, in the folder tensorboard/. Raises `ConfigError` if tensorboardX is not installed."""
    missing = f"--log tensorboard: needs tensorboardX; {pip_install('tensorboard')}"
    package = import_extra("tensorboardX", ConfigError, missing)

    def open_run(config: Config, name: str, group: str, start: int) -> TrackerRun:
        names = (folder / "tensorboard").glob(f"*-{name.rpartition('-')[2]}")  # whatever was swept when it started
        path = next(names, folder / "tensorboard" / name)
        # The file's name ends in a number, as its time is in whole seconds and a run may resume within one.
        suffix = f".{len(list(path.glob('events.*'))):05}"
        writer = package.SummaryWriter(str(path), purge_step=start, filename_suffix=suffix)

        def add(values: dict[str, float], round_: int) -> None:
            for key, value in values.items():
                writer.add_scalar(key, float(value), round_)
            writer.flush()

        return TrackerRun(add, writer.close)

    return Tracker(open_run)


def wandb(folder: Path) -> Tracker:
    """Weights & Biases with its environment variables: WANDB_PROJECT (default: fedsim), WANDB_MODE=offline.

    Raises `ConfigError` if wandb is not installed.
    """
    client = import_extra("wandb", ConfigError, f"--log wandb: needs wandb; {pip_install('wandb')}")

    def open_run(config: Config, name: str, group: str, start: int) -> TrackerRun:
        try:
            tracker_run = client.init(
                project=os.environ.get("WANDB_PROJECT", "fedsim"),
                name=name,
                group=folder.resolve().name,
                id=f"{group}-{run_id(config)}",
                resume="allow",
                config=flatten(config),
                dir=folder,
                reinit="create_new",
            )
        except (client.Error, ValueError) as error:  # also of pydantic, for variables of its environment
            problem = " ".join(str(error).partition(" [type=")[0].split()).rstrip(".")
            remedy = "; WANDB_MODE=offline needs no account" * (os.environ.get("WANDB_MODE") != "offline")
            raise ConfigError(f"--log wandb: {problem}{remedy}") from None
        return TrackerRun(lambda values, round_: tracker_run.log(values, step=round_), tracker_run.finish)

    return Tracker(open_run)


TRACKERS = {"tensorboard": tensorboard, "wandb": wandb}


def make_trackers(folder: Path, names: Sequence[str]) -> list[Callback]:
    """The callbacks for `--log`."""
    return [TRACKERS[name](folder) for name in dict.fromkeys(names)]
