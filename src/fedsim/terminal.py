"""Output to the terminal: consoles, and the progress of runs as a bar, or as lines in a pipe or a file."""

import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from fedsim.report.names import count, duration
from fedsim.report.render import terminal
from fedsim.report.table import text_table
from fedsim.runs.events import Evaluated, Event, GroupSkipped, GroupStarted, Started, Status

MAX_SECONDS = 10.0  # between two lines of progress
MIN_WIDTH = 100  # columns of output that is not a terminal


def make_console(stderr: bool = False, min_width: int = 0) -> Console:
    """A console for tables and lines, at least `min_width` columns wide."""
    console = Console(stderr=stderr, highlight=False, soft_wrap=True)
    width = max(console.width if console.is_terminal else MIN_WIDTH, min_width)
    if console.is_terminal and width == console.width:
        return console
    return Console(stderr=stderr, highlight=False, width=width)


def make_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Group:
    """A table of texts for a console."""
    return terminal([text_table("", header, rows, num_text=len(header))])


def show_progress(path: Path) -> "ProgressBar | ProgressLines":
    """An observer that shows the progress of runs into the folder `path` on stderr; a context manager."""
    console = make_console(stderr=True)
    is_notebook = console.is_jupyter and find_spec("ipywidgets") is not None
    return ProgressBar(console) if console.is_terminal or is_notebook else ProgressLines(console, path)


class ProgressBar:
    """A progress bar over all rounds of all runs, with the current activity."""

    def __init__(self, console: Console) -> None:
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._bar.stop()

    def __call__(self, event: Event) -> None:
        match event:
            case Started(num_runs, num_rounds, num_completed):
                self._task = self._bar.add_task(count(num_runs, "run"), total=num_rounds, completed=num_completed)
            case Status():
                self._bar.update(self._task, description=str(event))
            case GroupSkipped() | GroupStarted() | Evaluated():
                self._bar.advance(self._task, event.num_rounds)


class ProgressLines:
    """Lines at the start, at the end, whenever the activity changes, and at least every `seconds`."""

    def __init__(self, console: Console, path: Path, seconds: float = MAX_SECONDS) -> None:
        self._console, self._path, self._seconds = console, path, seconds
        self._started = self._last = time.perf_counter()
        self._num_rounds = self._resumed = self._completed = 0
        self._seconds_running = 0.0  # of earlier activities
        self._running_since: float | None = None
        self._activity = ""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, error: type[BaseException] | None, *rest: BaseException | TracebackType | None) -> None:
        self._closed.set()
        if error is None:
            self._print(f"all rounds completed: {self._describe()}")

    def __call__(self, event: Event) -> None:
        match event:
            case Started(num_runs, num_rounds, num_completed):
                self._num_rounds, self._resumed = num_rounds, num_completed
                self._print(f"{self._path}: {count(num_runs, 'run')}, {count(num_rounds, 'round')} in total")
            case Status():
                self._activity = str(event)
                self._seconds_running = self._running()
                self._running_since = time.perf_counter() if event.text == "running" else None
                self._print(self._activity)
            case GroupSkipped(num_rounds=num_rounds):
                self._resumed += num_rounds
            case GroupStarted(after=after, num_rounds=num_rounds):
                self._resumed += num_rounds
                if after >= 0:
                    self._print(f"resumes after round {after}")
            case Evaluated(num_rounds=num_rounds):
                self._completed += num_rounds

    def _report(self) -> None:
        while not self._closed.wait(self._seconds / 10):
            if time.perf_counter() - self._last >= self._seconds:
                self._print(f"{self._activity}, {self._describe()}")

    def _running(self) -> float:
        """The seconds in which rounds were computed, without compiling."""
        since = self._running_since
        return self._seconds_running + (0.0 if since is None else time.perf_counter() - since)

    def _describe(self) -> str:
        """For example "620 of 1,500 rounds, 31 rounds/s, 28 s left"; the rate does not count compiling."""
        completed = self._resumed + self._completed
        text = f"{completed:,} of {self._num_rounds:,} rounds"
        if self._completed and (seconds := self._running()):
            rate = self._completed / seconds
            text += f", {rate:.3g} rounds/s"
            if left := self._num_rounds - completed:
                text += f", {duration(left / rate)} left"
        return text

    def _print(self, text: str) -> None:
        self._last = time.perf_counter()
        self._console.print(f"[{self._last - self._started:6.1f} s] {text}", markup=False)
