"""Observers that send each run's curves to an experiment tracker: TensorBoard, Weights & Biases."""

import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fedsim.errors import ConfigError, import_extra, pip_install
from fedsim.runs.events import Evaluated, Event, GroupFinished, GroupStarted, Observer, Started
from fedsim.runs.folder import RunFolder
from fedsim.runs.streams import TRACKED, json_rows

PROJECT = "fedsim"


class TrackerRun(NamedTuple):
    """A run of a tracker."""

    add: Callable[[dict[str, float], int], None]
    """Takes values by name, and the round."""
    end: Callable[[], None]


class Tracker:
    """Opens a run of the tracker for each run of the folder, and adds its values after each evaluation.

    `open_run` takes the run's position, its name and the round from which its values are new.
    """

    def __init__(self, open_run: Callable[[int, str, int], TrackerRun]) -> None:
        self._open_run = open_run
        self._names: tuple[str, ...] = ()
        self._starts: dict[int, int] = {}  # of each group: the first round after its checkpoint
        self._runs: dict[int, TrackerRun] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Started(names=names):
                self._names = names
            case GroupStarted(group, after):
                self._starts[group] = after + 1
            case Evaluated(group, tables=tables):
                for row in json_rows(tables["rounds"]):
                    self._add(row, self._starts[group])
            case GroupFinished():
                for tracker_run in self._runs.values():
                    tracker_run.end()
                self._runs.clear()

    def _add(self, row: dict[str, Any], start: int) -> None:
        run = row["run"]
        if run not in self._runs:
            self._runs[run] = self._open_run(run, self._names[run], start)
        self._runs[run].add({name: row[name] for name in TRACKED if row[name] is not None}, row["round"])


def tensorboard(folder: Path) -> Tracker:
    """TensorBoard's files, in the folder tensorboard/. Raises `ConfigError` if tensorboardX is not installed."""
    missing = f"--log tensorboard: needs tensorboardX; {pip_install('tensorboard')}"
    package = import_extra("tensorboardX", ConfigError, missing)

    def open_run(run: int, name: str, start: int) -> TrackerRun:
        path = folder / "tensorboard" / name
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
    manifest = _manifest(folder)

    def open_run(run: int, name: str, start: int) -> TrackerRun:
        tracker_run = client.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=name,
            group=folder.name,
            id=f"{manifest()['id']}-{run:05}",
            resume="allow",
            config=manifest()["runs"][run],
            dir=folder,
            reinit="create_new",
        )
        return TrackerRun(lambda values, round_: tracker_run.log(values, step=round_), tracker_run.finish)

    return Tracker(open_run)


def _manifest(folder: Path) -> Callable[[], dict[str, Any]]:
    """Reads the folder's manifest once, when it is first needed. Its id is another after `--force`."""
    return cache(lambda: {"id": folder.name} | RunFolder(folder).read_manifest())


TRACKERS = {"tensorboard": tensorboard, "wandb": wandb}


def make_trackers(folder: Path, names: Sequence[str]) -> list[Observer]:
    """The observers for `--log`."""
    return [TRACKERS[name](folder) for name in dict.fromkeys(names)]
