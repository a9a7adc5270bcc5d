"""Compiles families in the background, while groups run."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from fedsim.engine.compiling import Programs, trace
from fedsim.engine.group_inputs import Inputs
from fedsim.engine.placement import make_inputs
from fedsim.engine.plan import Plan

MAX_FAMILIES = 32  # whose programs stay in memory while a plan runs


class BackgroundCompiler:
    """Compiles the next family in a thread while this group runs; a context that stops the thread at its end."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._executor = plan, ThreadPoolExecutor(1)
        self._next: Future[Any] | None = None
        self._kept: deque[Programs] = deque(maxlen=MAX_FAMILIES)

    def __enter__(self) -> "BackgroundCompiler":
        return self

    def __exit__(self, *error: object) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def start(self, number: int) -> tuple[Inputs, Programs]:
        """Starts to compile the programs of group `number`, unless they are known."""
        inputs = make_inputs(self._plan.groups[number], self._plan.families[number])
        programs = trace(inputs)
        self._next = programs.submit(self._executor)
        if programs not in self._kept:
            self._kept.append(programs)
        return inputs, programs

    def take(self, number: int) -> tuple[Inputs, Programs]:
        """The inputs and programs of group `number`; cancels the compilation of others that has not started."""
        previous, result = self._next, self.start(number)
        if previous is not None and previous is not self._next:
            previous.cancel()
        return result
