"""What happens while an experiment runs. One stream of events, and observers that each do their part of it."""

from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from fedsim.core.types import ServerState, Variables
from fedsim.runs.schemas import Tables


@dataclass(frozen=True)
class Started:
    """The plan is fixed; nothing has been computed."""

    num_runs: int
    num_rounds: int  # over all runs
    names: tuple[str, ...] = field(default=(), compare=False)  # of each run, what tells it apart


@dataclass(frozen=True)
class Status:
    """What goes on with a group: "compiling", "running", or why it does not run here."""

    group: int
    num_groups: int
    title: str  # for example "arfl, 15 runs"
    text: str

    def __str__(self) -> str:
        return f"group {self.group + 1}/{self.num_groups} {self.title}: {self.text}"


@dataclass(frozen=True)
class Kept:
    """A group is complete from an earlier start."""

    group: int
    num_rounds: int  # over its runs


@dataclass(frozen=True)
class Begun:
    """A group begins, or goes on after `after` (-1: from its start). What came of later rounds is void."""

    group: int
    after: int
    num_rounds: int  # that are done, over its runs


@dataclass(frozen=True)
class Evaluated:
    """A chunk of rounds is done and evaluated."""

    group: int
    round: int
    tables: Tables  # new rows
    num_rounds: int  # since the evaluation before, over the group's runs
    states: ServerState | None  # [S] all that is needed to go on from here; None: nothing is left to do


@dataclass(frozen=True)
class Last:
    """The states after the last round, to be kept for more rounds."""

    group: int
    round: int
    states: ServerState  # [S]


@dataclass(frozen=True)
class Trained:
    """A run's model after its last round."""

    run: int
    variables: Variables


@dataclass(frozen=True)
class Prepared:
    """The training data of a run, as its clients have them."""

    run: int
    arrays: dict[str, np.ndarray]  # the fields of `ClientData`


@dataclass(frozen=True)
class Ended:
    """Nothing more comes of a group, whether it is complete or not."""

    group: int


Event: TypeAlias = Started | Status | Kept | Begun | Evaluated | Last | Trained | Prepared | Ended


class Observer(Protocol):
    """Sees every event of an experiment, in order; an observer acts on those it is for."""

    def __call__(self, event: Event) -> None:
        """Raises what ends the experiment."""
