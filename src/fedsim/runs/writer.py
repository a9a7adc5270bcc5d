"""The observers that write a run folder: rows, checkpoints, models and data."""

from collections.abc import Callable, Sequence

import polars as pl

from fedsim.runs.checkpoints import Checkpoints
from fedsim.runs.events import Evaluated, Event, FinalState, GroupFinished, GroupStarted, RunData, RunModel
from fedsim.runs.groups import GroupFolder
from fedsim.runs.parts import Span
from fedsim.runs.schemas import as_table

MAX_BYTES = 2**27  # of rows in memory


class StateWriter:
    """Writes the checkpoints of one group; calls `before_saving` with the group's number first."""

    def __init__(self, checkpoints: Checkpoints, before_saving: Callable[[int], None] = lambda group: None) -> None:
        self._checkpoints, self._before_saving = checkpoints, before_saving

    def __call__(self, event: Event) -> None:
        match event:
            case Evaluated(group, round_, states=states) if states is not None and round_ > 0:
                if self._checkpoints.is_due():
                    self._before_saving(group)
                    self._checkpoints.save(round_, states())
            case FinalState(_, round_, states):
                self._checkpoints.save(round_, states)


class FolderWriter:
    """Writes the results of one group, whose runs are at `positions` in the plan.

    Rows wait in memory for the next checkpoint or the end of the group, however it ends; a run that resumes drops what
    follows its checkpoint. They are written before the checkpoint of their round.
    """

    def __init__(self, folder: GroupFolder, positions: Sequence[int], checkpoints: Checkpoints) -> None:
        self._folder, self._write_states = folder, StateWriter(checkpoints, lambda group: self._flush())
        ids = {position: run["id"] for position, run in zip(positions, folder.record.runs, strict=True)}
        self._ids = pl.Series("run", [ids.get(position, "") for position in range(max(positions) + 1)])
        self._waiting: list[tuple[int, dict[str, pl.DataFrame]]] = []  # round and new rows of each evaluation
        self._num_bytes: float = 0  # of these

    def __call__(self, event: Event) -> None:
        match event:
            case GroupStarted(_, after):
                self._folder.parts.delete(after)
            case Evaluated(_, round_, tables, states=states):
                new = {kind: self._with_ids(as_table(kind, columns)) for kind, columns in tables.items()}
                self._waiting.append((round_, new))
                self._num_bytes += sum(table.estimated_size() for table in new.values())
                if states is None or self._num_bytes > MAX_BYTES:
                    self._flush()
            case RunModel(run, variables):
                self._folder.write_model(self._ids[run], variables)
            case RunData(run, arrays):
                self._folder.write_data(self._ids[run], arrays)
            case GroupFinished():
                self._flush()
        self._write_states(event)

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
        self._folder.parts.write(Span(rounds[0], rounds[-1]), joined)
        self._waiting.clear()
        self._num_bytes = 0
