"""Observers that write rows while the experiment runs: JSON lines, and TensorBoard."""

import json
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from fedsim.errors import ConfigError, RunFolderError
from fedsim.runs import sweep
from fedsim.runs.events import Evaluated, Event, GroupFinished, GroupStarted, Started
from fedsim.runs.folder import RunFolder
from fedsim.runs.schemas import Columns
from fedsim.runs.sweep import Run

TRACKED = (
    "test_accuracy",
    "test_loss",
    "validation_accuracy",
    "validation_loss",
    "corrupted_weight",
    "malicious_weight",
    "backdoor_success",
)


class JsonLines:
    """A file a group, log/<group>.jsonl in the run folder, a line a row of rounds.parquet; null: not a number."""

    def __init__(self, folder: RunFolder, runs: Sequence[Run]) -> None:
        self._folder, self._runs = folder, runs

    @cached_property
    def _swept(self) -> dict[str, list[Any]]:
        """Of each run, by column."""
        return {key: column.to_pylist() for key, column in sweep.swept_columns(self._runs).items()}

    def __call__(self, event: Event) -> None:
        match event:
            case GroupStarted(group, after):
                self._truncate(group, after)
            case Evaluated(group, tables=tables):
                self._append(group, tables["rounds"])

    def _truncate(self, group: int, after: int) -> None:
        """Keeps the lines up to round `after`."""
        path = self._path(group)
        lines = path.read_text().splitlines() if path.exists() and after >= 0 else []
        kept = [line for line in lines if line.endswith("}") and json.loads(line)["round"] <= after]
        self._folder.write_text(f"log/{path.name}", "".join(line + "\n" for line in kept))

    def _append(self, group: int, columns: Columns) -> None:
        path = self._path(group)
        swept = {key: [values[run] for run in columns["run"]] for key, values in self._swept.items()}
        try:
            with path.open("a") as file:
                for row in json_rows({**columns, **swept}):
                    file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be written: {error.strerror}") from None

    def _path(self, group: int) -> Path:
        return self._folder.path / "log" / f"{group:05}.jsonl"


class TensorBoard:
    """Each run's accuracies and losses, corrupted clients' weight and backdoor success, in the folder tensorboard/."""

    def __init__(self, folder: Path) -> None:
        try:
            import tensorboardX
        except ImportError:
            raise ConfigError("--tensorboard: needs tensorboardX; pip install 'fedsim[tensorboard]'") from None
        self._writer_of = tensorboardX.SummaryWriter
        self._folder = folder / "tensorboard"
        self._purge: dict[int, int] = {}  # of each group: the round from which TensorBoard discards earlier points
        self._writers: dict[int, Any] = {}
        self._names: tuple[str, ...] = ()

    def __call__(self, event: Event) -> None:
        match event:
            case Started(names=names):
                self._names = names
            case GroupStarted(group, after):
                self._purge[group] = after + 1
            case Evaluated(group, tables=tables):
                self._add_points(group, tables["rounds"])
            case GroupFinished():
                for writer in self._writers.values():
                    writer.close()
                self._writers.clear()

    def _add_points(self, group: int, columns: Columns) -> None:
        """Adds a point for each run and curve."""
        for values in json_rows(columns):
            run = values["run"]
            if run not in self._writers:
                name = self._names[run] if self._names else f"{run:05}"
                self._writers[run] = self._writer(self._folder / name, self._purge[group])
            for name in TRACKED:
                if values[name] is not None:
                    self._writers[run].add_scalar(name, float(values[name]), values["round"])
            self._writers[run].flush()

    def _writer(self, folder: Path, purge_step: int) -> Any:
        """The file's name ends in a number, as its time is in whole seconds and a run may resume within one."""
        number = len(list(folder.glob("events.*")))
        return self._writer_of(str(folder), purge_step=purge_step, filename_suffix=f".{number:05}")


def json_rows(columns: Columns) -> Iterator[dict[str, Any]]:
    """Each row by column, as JSON values; None for numbers that are not finite."""
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, map(_json_value, row), strict=True))


def _json_value(value: Any) -> Any:
    """A JSON value; None for a number that is not finite."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
