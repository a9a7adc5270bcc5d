"""The observer that writes a run folder: rows, checkpoints, models and data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from fedsim.runs.checkpoints import Checkpoints
from fedsim.runs.events import Evaluated, Event, GroupFinished, GroupStarted, RunData, RunModel
from fedsim.runs.groups import GroupFolder
from fedsim.runs.schemas import as_table

if TYPE_CHECKING:
    from fedsim.core.types import Variables

MAX_BYTES = 2**27  # of rows in memory


class FolderWriter:
    """Writes the results of one group, whose runs are at `positions` in the plan.

    Rows wait in memory for the next checkpoint or the end of the group, however it ends; a run that resumes drops what
    follows its checkpoint. They are written before the checkpoint of their round.
    """

    def __init__(self, folder: GroupFolder, positions: Sequence[int], checkpoints: Checkpoints) -> None:
        self._folder, self._checkpoints = folder, checkpoints
        ids = {position: run["id"] for position, run in zip(positions, folder.record.runs, strict=True)}
        self._ids = pl.Series("run", [ids.get(position, "") for position in range(max(positions) + 1)])
        self._waiting: list[tuple[int, dict[str, pl.DataFrame]]] = []  # round and new rows of each evaluation
        self._num_bytes: float = 0  # of these

    def __call__(self, event: Event) -> None:
        match event:
            case GroupStarted(_, after):
                self._folder.delete_rows(after)
            case Evaluated(_, round_, tables, states=states):
                new = {kind: self._with_ids(as_table(kind, columns)) for kind, columns in tables.items()}
                self._waiting.append((round_, new))
                self._num_bytes += sum(table.estimated_size() for table in new.values())
                if states is None or self._num_bytes > MAX_BYTES:
                    self._flush()
            case RunModel(run, variables):
                self._folder.write_arrays("models", self._ids[run], _by_path(variables))
            case RunData(run, arrays):
                self._folder.write_arrays("data", self._ids[run], arrays)
            case GroupFinished():
                self._flush()
        self._checkpoints.save_states(event, self._flush)

    def _with_ids(self, table: pl.DataFrame) -> pl.DataFrame:
        """The rows with the ids of runs in place of their positions in the plan."""
        return table.with_columns(self._ids.gather(table["run"]))

    def _flush(self) -> None:
        """Writes the rows that wait."""
        if not self._waiting:
            return
        rounds, evaluations = zip(*self._waiting, strict=True)
        kinds = dict.fromkeys(kind for tables in evaluations for kind in tables)
        joined = {kind: pl.concat([tables[kind] for tables in evaluations if kind in tables]) for kind in kinds}
        self._folder.write_rows(rounds[0], rounds[-1], joined)
        self._waiting.clear()
        self._num_bytes = 0


def _by_path(variables: "Variables") -> dict[str, np.ndarray]:
    """A model's arrays by path, such as "Dense_0/kernel" or "statistics/..."; a plug-in's need not be a dict."""
    import jax

    params, statistics = variables
    tree = params if isinstance(params, dict) else {"params": params}
    flat, _ = jax.tree.flatten_with_path(tree | ({"statistics": statistics} if statistics else {}))
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}
