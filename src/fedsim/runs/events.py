"""Events of an experiment that runs. Observers see one stream of events, and each handles those it needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from fedsim.runs.schemas import Tables

if TYPE_CHECKING:
    from fedsim.config.schema import Config
    from fedsim.core.types import SimulationState, Variables


@dataclass(frozen=True)
class Started:
    """The plan is fixed; nothing has been computed."""

    num_runs: int
    num_rounds: int
    """Sum over all runs."""
    num_completed: int = 0
    """Rounds of the runs that are complete already, which are in no group."""
    configs: "Sequence[Config]" = field(default=(), compare=False)
    """The runs."""


@dataclass(frozen=True)
class Status:
    """The status of a group: "compiling", "running", or why this process does not run it."""

    group: int
    num_groups: int
    title: str
    """For example "arfl, 15 runs"."""
    text: str

    def __str__(self) -> str:
        return f"group {self.group + 1}/{self.num_groups} {self.title}: {self.text}"


@dataclass(frozen=True)
class GroupSkipped:
    """Another process has completed a group."""

    group: int
    num_rounds: int
    """Sum over its runs."""


@dataclass(frozen=True)
class GroupStarted:
    """A group starts, or resumes after a checkpoint. Results of later rounds are invalid."""

    group: int
    after: int
    """The round of the checkpoint; -1: it starts from the initial model."""
    num_rounds: int
    """Completed rounds, sum over its runs."""
    name: str = field(default="", compare=False)
    """Of its folder: another one if the runs are computed again."""


@dataclass(frozen=True)
class Evaluated:
    """A chunk of rounds is completed and evaluated."""

    group: int
    round: int
    tables: Tables
    """The new rows."""
    num_rounds: int
    """Rounds since the last evaluation, sum over the group's runs."""
    states: "Callable[[], Sequence[SimulationState]] | None"
    """Returns the batches' states [B], from which the group can resume, until the next rounds; None after the last."""


@dataclass(frozen=True)
class FinalState:
    """The states after the last round, which are kept to add more rounds."""

    group: int
    round: int
    states: "Sequence[SimulationState]"
    """Of each batch, [B]."""


@dataclass(frozen=True)
class RunModel:
    """A run's model after its last round."""

    run: int
    variables: "Variables"


@dataclass(frozen=True)
class RunData:
    """The training data of a run, as its clients have them."""

    run: int
    arrays: dict[str, np.ndarray]
    """The fields of `ClientData`."""


@dataclass(frozen=True)
class GroupFinished:
    """The last event of a group, whether it is complete or not."""

    group: int


Event: TypeAlias = (
    Started | Status | GroupSkipped | GroupStarted | Evaluated | FinalState | RunModel | RunData | GroupFinished
)


class Observer(Protocol):
    """Sees every event of an experiment, in order."""

    def __call__(self, event: Event) -> None:
        """Handles the event. An exception ends the experiment."""
