"""The observer that writes rows as JSON lines while the experiment runs, and the values that trackers get."""

import json
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from fedsim.runs import sweep
from fedsim.runs.events import Evaluated, Event, GroupStarted
from fedsim.runs.files import write_error
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
        return {key: column.to_list() for key, column in sweep.swept_columns(self._runs).items()}

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
            raise write_error(path, error) from None

    def _path(self, group: int) -> Path:
        return self._folder.path / "log" / f"{group:05}.jsonl"


def json_rows(columns: Columns) -> Iterator[dict[str, Any]]:
    """Each row by column, as JSON values; None for numbers that are not finite."""
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, map(_json_value, row), strict=True))


def _json_value(value: Any) -> Any:
    """A JSON value; None for a number that is not finite."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
