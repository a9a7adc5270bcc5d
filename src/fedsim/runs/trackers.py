"""Observers that send each run's curves to an experiment tracker: Weights & Biases, MLflow."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fedsim.errors import ConfigError
from fedsim.runs.events import Ended, Evaluated, Event, Observer, Started
from fedsim.runs.folder import RunFolder
from fedsim.runs.streams import MEASURED, TensorBoard, plain_rows

PROJECT = "fedsim"


class Log(NamedTuple):
    """A run as a tracker has it."""

    add: Callable[[dict[str, float], int], None]  # values by name, and the round
    end: Callable[[], None]


class Tracker:
    """Opens a run of the tracker for each run of the folder, and adds its values after each evaluation."""

    def __init__(self, folder: Path, opened: Callable[[int, str, dict[str, Any]], Log]) -> None:
        self._folder, self._opened = RunFolder(folder), opened
        self._names: tuple[str, ...] = ()
        self._configs: list[dict[str, Any]] = []
        self._logs: dict[int, Log] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Started(names=names):
                self._names, self._configs = names, self._folder.read_manifest()["runs"]
            case Evaluated(tables=tables):
                for row in plain_rows(tables["rounds"]):
                    self._add(row)
            case Ended():
                for log in self._logs.values():
                    log.end()
                self._logs.clear()

    def _add(self, row: dict[str, Any]) -> None:
        run = row["run"]
        if run not in self._logs:
            self._logs[run] = self._opened(run, self._names[run], self._configs[run])
        self._logs[run].add({name: row[name] for name in MEASURED if row[name] is not None}, row["round"])


def wandb(folder: Path) -> Tracker:
    """To Weights & Biases, as its environment says: project WANDB_PROJECT, by default "fedsim"; WANDB_MODE=offline."""
    try:
        import wandb as client
    except ImportError:
        raise ConfigError("--log wandb: needs wandb; pip install 'fedsim[wandb]'") from None

    def opened(run: int, name: str, config: dict[str, Any]) -> Log:
        one = client.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=name,
            group=folder.name,
            id=f"{folder.name}-{run:05}",
            resume="allow",
            config=config,
            dir=folder,
            reinit="create_new",
        )
        return Log(lambda values, round_: one.log(values, step=round_), one.finish)

    return Tracker(folder, opened)


def mlflow(folder: Path) -> Tracker:
    """To MLflow, as its environment says: MLFLOW_TRACKING_URI; the experiment MLFLOW_EXPERIMENT_NAME, or "fedsim"."""
    try:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param
    except ImportError:
        raise ConfigError("--log mlflow: needs mlflow; pip install 'fedsim[mlflow]'") from None
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
    try:
        client = MlflowClient()
        found = client.get_experiment_by_name(name)
        experiment = client.create_experiment(name) if found is None else found.experiment_id
    except Exception as error:  # of the store that MLFLOW_TRACKING_URI names, or of none
        raise ConfigError(f"--log mlflow: {str(error).splitlines()[0]}") from None

    def opened(run: int, name: str, config: dict[str, Any]) -> Log:
        tags = {"fedsim.folder": str(folder.absolute()), "fedsim.run": str(run)}
        same = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        before = client.search_runs([experiment], same)
        if before:
            identity = before[0].info.run_id
        else:
            identity = client.create_run(experiment, run_name=name, tags=tags).info.run_id
            client.log_batch(identity, params=[Param(key, str(value)) for key, value in config.items()])

        def add(values: dict[str, float], round_: int) -> None:
            now = int(1000 * time.time())
            client.log_batch(identity, metrics=[Metric(key, value, now, round_) for key, value in values.items()])

        return Log(add, lambda: client.set_terminated(identity))

    return Tracker(folder, opened)


TRACKERS = {"wandb": wandb, "mlflow": mlflow}


def sinks(folder: Path, tensorboard: bool, log: str | None) -> list[Observer]:
    """What is asked for by `--tensorboard` and `--log`."""
    found: list[Observer] = [TensorBoard(folder)] if tensorboard else []
    return found + ([TRACKERS[log](folder)] if log else [])
