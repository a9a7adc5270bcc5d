"""The callback that writes a run folder: rows, checkpoints, models and data."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from fedsim.runs.arrays import by_path
from fedsim.runs.callbacks import Callback, Evaluation, Start
from fedsim.runs.checkpoints import Checkpoints
from fedsim.runs.groups import GroupFolder
from fedsim.runs.schemas import as_table

if TYPE_CHECKING:
    from fedsim.core.types import SimulationState, Variables

MAX_BYTES = 2**27  # of rows in memory


class GroupWriter(Callback):
    """Writes the results of one group into its `folder`.

    Rows wait in memory for the next checkpoint or the end of the group, however it ends; a run that resumes drops what
    follows its checkpoint. They are written before the checkpoint of their round. Of several processes, each writes its
    part of checkpoints, and all else is written where `is_primary`.
    """

    def __init__(self, folder: GroupFolder, checkpoints: Checkpoints, is_primary: bool = True) -> None:
        self._folder, self._checkpoints, self._is_primary = folder, checkpoints, is_primary
        self._waiting: list[tuple[int, dict[str, pl.DataFrame]]] = []  # round and new rows of each evaluation
        self._num_bytes: float = 0  # of these

    def on_start(self, start: Start) -> None:
        self._record = start.configs[start.runs[0]].record
        self._ids = {run: row["id"] for run, row in zip(start.runs, self._folder.record.runs, strict=True)}
        if self._is_primary:
            self._folder.delete_rows(start.after)
            for run, arrays in start.data.items():
                self._folder.write_arrays("data", self._ids[run], arrays)

    def after_evaluation(self, evaluation: Evaluation) -> None:
        if self._is_primary:
            tables = {kind: as_table(kind, columns) for kind, columns in evaluation.tables.items()}
            new = {k: table.with_columns(pl.col("run").replace_strict(self._ids)) for k, table in tables.items()}
            self._waiting.append((evaluation.round, new))
            self._num_bytes += sum(table.estimated_size() for table in new.values())
            if evaluation.is_last or self._num_bytes > MAX_BYTES:
                self._flush()
        if not evaluation.is_last and evaluation.round > 0 and self._checkpoints.is_due():
            self.save(evaluation.round, evaluation.states)

    def save(self, round_: int, states: Callable[[], Sequence["SimulationState"]]) -> None:
        """Saves the rows that wait, and the states after a round."""
        self._flush()
        self._checkpoints.save(round_, states())

    def finish(
        self,
        round_: int,
        models: Callable[[], Mapping[int, "Variables"]],
        states: Callable[[], Sequence["SimulationState"]],
    ) -> None:
        """Saves what is kept of a complete group: its models, and states to add more rounds."""
        if self._record.final_states:
            self.save(round_, states)
        for run, variables in models().items() if self._record.models else ():
            if self._is_primary:
                self._folder.write_arrays("models", self._ids[run], by_path(variables))

    def read_rounds(self, last: int) -> pl.DataFrame:
        """The rows of "rounds" up to the round `last` that were written, of runs by their positions in the group."""
        return self._folder.read("rounds").filter(pl.col("round") <= last)

    def on_end(self) -> None:
        self._flush()

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
