"""Where rows go as they come, beside the run folder's tables: JSON lines to be tailed, and TensorBoard."""

import json
import math
from pathlib import Path
from typing import Any, Protocol

from fedsim.errors import ConfigError, RunFolderError
from fedsim.rows import Columns
from fedsim.store import RunFolder

MEASURED = ("test_accuracy", "test_loss", "corrupted_weight")


class Sink(Protocol):
    """Gets a group's rows of rounds.parquet after each evaluation."""

    def begin(self, group: int, round_: int) -> None:
        """`group` begins, or goes on after `round_` (-1: from its start); what came of later rounds is void."""

    def rows(self, group: int, columns: Columns) -> None:
        """The rows of one evaluation, a row a run."""

    def end(self) -> None:
        """No more of this group comes, whether it is complete or not."""


class JsonLines:
    """A file a group, log/<group>.jsonl in the run folder, a line a row; null: not a number."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def begin(self, group: int, round_: int) -> None:
        """Keeps the lines up to `round_`."""
        path = self._folder.path / self._name(group)
        lines = path.read_text().splitlines() if path.exists() and round_ >= 0 else []
        kept = [line for line in lines if line.endswith("}") and json.loads(line)["round"] <= round_]
        self._folder.write_text(self._name(group), "".join(line + "\n" for line in kept))

    def rows(self, group: int, columns: Columns) -> None:
        """Appends a line a row."""
        path = self._folder.path / self._name(group)
        try:
            with path.open("a") as file:
                for row in zip(*columns.values(), strict=True):
                    file.write(json.dumps(dict(zip(columns, map(_plain, row), strict=True))) + "\n")
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be written: {error.strerror}") from None

    def end(self) -> None:
        """All lines are written already."""

    def _name(self, group: int) -> str:
        return f"log/{group:05}.jsonl"


class TensorBoard:
    """Test accuracy and loss and the corrupted clients' weight of each run, in tensorboard/ in the run folder."""

    def __init__(self, folder: Path) -> None:
        try:
            import tensorboardX
        except ImportError:
            raise ConfigError("--tensorboard: needs tensorboardX; pip install 'fedsim[tensorboard]'") from None
        self._writer_of = tensorboardX.SummaryWriter
        self._folder = folder / "tensorboard"
        self._purge: dict[int, int] = {}
        self._writers: dict[int, Any] = {}

    def begin(self, group: int, round_: int) -> None:
        """TensorBoard forgets what came after `round_`."""
        self._purge[group] = round_ + 1

    def rows(self, group: int, columns: Columns) -> None:
        """A point a run and curve."""
        for row in zip(*columns.values(), strict=True):
            values = dict(zip(columns, row, strict=True))
            run = int(values["run"])
            if run not in self._writers:
                name = f"{run:05}-{values['aggregator']}-{values['corruption']}-seed{values['seed']}"
                self._writers[run] = self._writer_of(str(self._folder / name), purge_step=self._purge[group])
            for name in MEASURED:
                if _plain(values[name]) is not None:
                    self._writers[run].add_scalar(name, float(values[name]), int(values["round"]))
            self._writers[run].flush()

    def end(self) -> None:
        """Closes the runs' files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


def _plain(value: Any) -> Any:
    """A JSON value; None where it is not a finite number."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
