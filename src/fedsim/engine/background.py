"""Compiles families in the background, while groups run."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from fedsim.engine.compiling import GroupCompiler
from fedsim.engine.shared_programs import SharedPrograms

MAX_FAMILIES = 32  # whose programs stay in memory while a plan runs


class BackgroundCompiler:
    """Compiles the next family in a thread while this group runs; a context that stops the thread at its end."""

    def __init__(self, make_compiler: Callable[[int], GroupCompiler]) -> None:
        self._make_compiler, self._executor = make_compiler, ThreadPoolExecutor(1)
        self._next: Future[Any] | None = None
        self._kept: deque[SharedPrograms] = deque(maxlen=MAX_FAMILIES)

    def __enter__(self) -> "BackgroundCompiler":
        return self

    def __exit__(self, *error: object) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def start(self, number: int) -> GroupCompiler:
        """Starts to compile the programs of group `number`, unless they are known; the group's compiler."""
        compiler = self._make_compiler(number)
        self._next = compiler.submit(self._executor)
        if compiler.shared not in self._kept:
            self._kept.append(compiler.shared)
        return compiler

    def take(self, number: int) -> GroupCompiler:
        """The compiler of group `number`; cancels the compilation of others that has not started."""
        previous, compiler = self._next, self.start(number)
        if previous is not None and previous is not self._next:
            previous.cancel()
        return compiler
