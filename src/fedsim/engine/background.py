"""Compiles families in the background, while groups run."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from fedsim.engine.compiling import GroupCompiler
from fedsim.engine.family import Family


class BackgroundCompiler:
    """Compiles the next family in a thread while this group runs; a context that stops the thread at its end."""

    def __init__(self, make_compiler: Callable[[int], GroupCompiler]) -> None:
        self._make_compiler, self._executor = make_compiler, ThreadPoolExecutor(1)
        self._leaders: dict[Family, GroupCompiler] = {}

    def __enter__(self) -> "BackgroundCompiler":
        return self

    def __exit__(self, *error: object) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def start(self, number: int) -> GroupCompiler:
        """Starts to compile the family of group `number`, unless it was started before; the group's compiler."""
        compiler = self._make_compiler(number)
        if (leader := self._leaders.get(compiler.family)) is None:
            compiler.submit(self._executor)
            self._leaders[compiler.family] = compiler
        else:
            compiler.follow(leader)
        return compiler

    def take(self, number: int) -> GroupCompiler:
        """The compiler of group `number`; cancels all families whose compilation has not started."""
        compiler = self.start(number)
        for family, leader in list(self._leaders.items()):
            if family is not compiler.family and leader.cancel():
                del self._leaders[family]
        return compiler
