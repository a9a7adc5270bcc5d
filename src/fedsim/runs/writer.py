"""The observer that writes a run folder: rows, checkpoints, models and data."""

from fedsim.runs.checkpoints import Checkpoints
from fedsim.runs.events import Begun, Evaluated, Event, Last, Prepared, Trained
from fedsim.runs.folder import RunFolder


class FolderWriter:
    """Writes what comes of one group. Rows are there before the checkpoint that goes on behind them."""

    def __init__(self, folder: RunFolder, checkpoints: Checkpoints) -> None:
        self._folder, self._checkpoints = folder, checkpoints

    def __call__(self, event: Event) -> None:
        match event:
            case Begun(group, after):
                self._folder.drop_parts(group, after)
            case Evaluated(group, round_, tables, states=states):
                self._folder.write_part(group, round_, tables)
                if states is not None and round_ > 0:
                    self._checkpoints.save(round_, states)
            case Last(_, round_, states):
                self._checkpoints.save(round_, states, now=True)
            case Trained(run, variables):
                self._folder.write_model(run, variables)
            case Prepared(run, arrays):
                self._folder.write_data(run, arrays)
