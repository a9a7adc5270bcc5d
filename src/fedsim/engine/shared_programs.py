"""Compiled programs that stay in memory after a run, so a later run of this process with equal ones starts at once."""

from collections import deque
from collections.abc import Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary

from fedsim.core.types import SimulationState
from fedsim.engine.backdoors import BackdoorTests
from fedsim.engine.inputs import EvaluationData, RunInputs, SharedInputs
from fedsim.engine.programs import Executables

MAX_FAMILIES = 8  # whose programs stay in memory: each takes hundreds of the 65,530 memory maps of a Linux process


class InputShapes(NamedTuple):
    """The shapes of what a batch of runs reads."""

    shared: SharedInputs
    evaluation: EvaluationData
    runs: RunInputs
    backdoors: BackdoorTests | None


@dataclass(eq=False)
class SharedPrograms:
    """What all groups with equal programs share, as far as it is known."""

    shapes: InputShapes | None = None
    """Of the inputs of a batch."""
    states: SimulationState | None = None
    """The shapes [B] of a batch's states."""
    compiled: Future[tuple[Executables, float]] | None = None
    """The programs, and the seconds of tracing and compiling them."""
    is_reported: bool = False
    """Whether a group has counted these seconds."""

    def keep(self, compiled: Future[tuple[Executables, float]]) -> None:
        """Keeps the programs in memory, in place of those that were kept first if there are too many."""
        self.compiled = compiled
        if self not in _recent:
            _recent.append(self)


_by_key: WeakValueDictionary[Hashable, SharedPrograms] = WeakValueDictionary()
_recent: deque[SharedPrograms] = deque(maxlen=MAX_FAMILIES)


def shared_programs(key: Hashable) -> SharedPrograms:
    """What the groups share whose programs have this key, for as long as one of them or the memory keeps it."""
    return _by_key.setdefault(key, SharedPrograms())


def clear_programs() -> None:
    """Frees the programs that earlier runs of this process have compiled."""
    _by_key.clear()
    _recent.clear()
