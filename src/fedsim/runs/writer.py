"""The observer that writes a run folder: rows, checkpoints, models and data."""

from fedsim.runs.checkpoints import Checkpoints
from fedsim.runs.events import Evaluated, Event, FinalState, GroupStarted, RunData, RunModel
from fedsim.runs.folder import RunFolder


class FolderWriter:
    """Writes the results of one group. Rows are written before the checkpoint from which later rounds resume."""

    def __init__(self, folder: RunFolder, checkpoints: Checkpoints) -> None:
        self._folder, self._checkpoints = folder, checkpoints

    def __call__(self, event: Event) -> None:
        match event:
            case GroupStarted(group, after):
                self._folder.delete_parts(group, after)
            case Evaluated(group, round_, tables, states=states):
                self._folder.write_part(group, round_, tables)
                if states is not None and round_ > 0:
                    self._checkpoints.save(round_, states())
            case FinalState(_, round_, states):
                self._checkpoints.save(round_, states, now=True)
            case RunModel(run, variables):
                self._folder.write_model(run, variables)
            case RunData(run, arrays):
                self._folder.write_data(run, arrays)
