"""What watches an experiment that runs: progress, trackers, and whatever users pass as `callbacks`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from fedsim.config.schema import Config
    from fedsim.core.types import SimulationState, Variables
    from fedsim.runs.schemas import Tables


@dataclass(frozen=True)
class Start:
    """A group of runs, which are computed together, starts or is resumed."""

    group: str
    """The name of its folder."""
    runs: tuple[int, ...]
    """The numbers of its runs, as in the column "run" of rows."""
    configs: "Sequence[Config]"
    """All runs of the experiment, by number."""
    after: int
    """The round of the checkpoint that it is resumed from; -1: it starts. Rows of later rounds are computed again.

    The last round if another process has completed the group: then there are no evaluations."""
    num_completed: int
    """Rounds that are complete, sum over all runs of the experiment."""
    num_rounds: int
    """All rounds, sum over all runs of the experiment."""
    data: "Mapping[int, dict[str, np.ndarray]]"
    """The clients' training data of each run, as fields of `ClientData`, if `record.data` is set."""


@dataclass(frozen=True)
class Evaluation:
    """A group was evaluated: before its first round, or after a chunk of rounds."""

    group: str
    """The name of its folder."""
    round: int
    """The completed rounds of its runs."""
    tables: "Tables"
    """The new rows by table ("rounds", "clients", "info"), as columns; a copy for each callback."""
    num_new: int
    """Rounds since the last evaluation, sum over the group's runs."""
    num_completed: int
    """Rounds that are complete, sum over all runs of the experiment."""
    seconds: float
    """Since the last evaluation, or since the start of the group; without compiling."""
    is_last: bool
    """Whether the group is complete."""
    models: "Callable[[], Mapping[int, Variables]]"
    """Returns the runs' models, before the next rounds start. Raises `ConfigError` in a run of several processes."""
    states: "Callable[[], Sequence[SimulationState]]"
    """Returns the states from which the group can be resumed. As for `models`."""


class Callback:
    """Watches the groups of an experiment, one after another; subclasses override what they need.

    An exception ends the experiment. The folder can be resumed after it.
    """

    def on_start(self, start: Start) -> None:
        """Called when a group starts, before its first round."""

    def after_evaluation(self, evaluation: Evaluation) -> bool | None:
        """Called after each evaluation. True stops the experiment, which can be resumed."""

    def on_end(self) -> None:
        """Called when a group ends, complete or not, if `on_start` was called."""
