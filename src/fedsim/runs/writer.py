"""The observer that writes a run folder: rows, checkpoints, models and data."""

import pyarrow as pa

from fedsim.runs.checkpoints import Checkpoints
from fedsim.runs.events import Evaluated, Event, FinalState, GroupFinished, GroupStarted, RunData, RunModel
from fedsim.runs.folder import RunFolder
from fedsim.runs.parts import Parts, Span
from fedsim.runs.schemas import as_table

MAX_BYTES = 2**27  # of rows in memory


class FolderWriter:
    """Writes the results of one group.

    Rows wait in memory for the next checkpoint or the end of the group, however it ends; a run that resumes drops what
    follows its checkpoint. They are written before the checkpoint of their round.
    """

    def __init__(self, folder: RunFolder, checkpoints: Checkpoints) -> None:
        self._folder, self._checkpoints = folder, checkpoints
        self._waiting: list[tuple[int, dict[str, pa.Table]]] = []  # round and new rows of each evaluation
        self._num_bytes = 0  # of these

    def __call__(self, event: Event) -> None:
        match event:
            case GroupStarted(group, after):
                self._folder.parts(group).delete(after)
            case Evaluated(group, round_, tables, states=states):
                new = {kind: as_table(kind, tables[kind]) for kind in tables}
                self._waiting.append((round_, new))
                self._num_bytes += sum(table.nbytes for table in new.values())
                is_due = states is not None and round_ > 0 and self._checkpoints.is_due()
                if is_due or states is None or self._num_bytes > MAX_BYTES:
                    self._flush(self._folder.parts(group))
                if is_due and states is not None:
                    self._checkpoints.save(round_, states())
            case FinalState(_, round_, states):
                self._checkpoints.save(round_, states)
            case RunModel(run, variables):
                self._folder.write_model(run, variables)
            case RunData(run, arrays):
                self._folder.write_data(run, arrays)
            case GroupFinished(group):
                self._flush(self._folder.parts(group))

    def _flush(self, parts: Parts) -> None:
        """Writes the rows that wait."""
        if not self._waiting:
            return
        rounds, evaluations = zip(*self._waiting, strict=True)
        kinds = dict.fromkeys(kind for tables in evaluations for kind in tables)
        joined = {kind: pa.concat_tables([tables[kind] for tables in evaluations if kind in tables]) for kind in kinds}
        parts.write(Span(rounds[0], rounds[-1]), joined)
        self._waiting.clear()
        self._num_bytes = 0
