"""Compiles families in the background, while groups run."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from fedsim.engine.compiling import GroupCompiler


class BackgroundCompiler:
    """Compiles the next family in a thread while this group runs; a context that stops the thread at its end."""

    def __init__(self, make_compiler: Callable[[int], GroupCompiler]) -> None:
        self._make_compiler, self._executor = make_compiler, ThreadPoolExecutor(1)
        self._upcoming: Future[Any] | None = None

    def __enter__(self) -> "BackgroundCompiler":
        return self

    def __exit__(self, *error: object) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def start(self, number: int) -> GroupCompiler:
        """Starts to compile the programs of group `number`, unless they are known; the group's compiler."""
        compiler = self._make_compiler(number)
        self._upcoming = compiler.submit(self._executor)
        return compiler

    def take(self, number: int) -> GroupCompiler:
        """The compiler of group `number`; cancels the compilation of others that has not started."""
        upcoming, compiler = self._upcoming, self.start(number)
        if upcoming is not None and upcoming is not self._upcoming:
            upcoming.cancel()
        return compiler
