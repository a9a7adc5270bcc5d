"""Output to the terminal: consoles, and progress as a bar or a counter, or as lines in a pipe or a file."""

import logging
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from fedsim.config.schema import Config
from fedsim.report.names import count, duration
from fedsim.report.render import terminal
from fedsim.report.table import text_table
from fedsim.runs.callbacks import Callback, Evaluation, Start

MAX_SECONDS = 10.0  # between two lines of progress
WIDTH = 100  # columns of output that is not a terminal
log = logging.getLogger("fedsim")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leaves the error to `main`; rich would end the process with exit code 1."""
        raise


def make_console(stderr: bool = False) -> Console:
    """A console for tables and lines."""
    console = _Console(stderr=stderr, highlight=False, markup=False, soft_wrap=True)
    return console if console.is_terminal else _Console(stderr=stderr, highlight=False, markup=False, width=WIDTH)


def make_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Group:
    """A table of texts for a console."""
    return terminal([text_table("", header, rows)])


class Counter:
    """A status line on stderr that counts; outside a terminal, a line for each new activity."""

    def __init__(self) -> None:
        self._console = make_console(stderr=True)
        self._status = self._console.status("")
        self._activity = ""

    def __enter__(self) -> "Counter":
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._status.stop()

    def tick(self, activity: str, completed: int, total: int) -> None:
        """Shows the activity and that `completed` of `total` units are; a total of 0 is unknown."""
        if self._console.is_terminal:
            so_far = f" {completed:,}" if completed else ""
            of_all = f" of {total:,}" if total else ""
            self._status.update(f"{activity}{so_far}{of_all}")
        elif activity != self._activity:
            self._console.print(f"{activity} ...")
        self._activity = activity


def show_progress(path: Path, configs: Sequence[Config]) -> "Progress":
    """Shows the progress of the runs `configs` into the folder `path` on stderr; a context manager."""
    console = make_console(stderr=True)
    is_notebook = console.is_jupyter and find_spec("ipywidgets") is not None
    size = len(configs), sum(config.server.num_rounds for config in configs)
    return ProgressBar(console, *size) if console.is_terminal or is_notebook else ProgressLines(console, path, *size)


class Progress(Callback, logging.Handler):
    """Shows completed rounds, and what fedsim logs: what it is doing."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)

    def __enter__(self) -> Self:
        self._before = log.level, log.propagate
        log.addHandler(self)
        log.setLevel(logging.INFO)
        log.propagate = False
        return self

    def __exit__(self, *error: object) -> None:
        level, log.propagate = self._before
        log.setLevel(level)
        log.removeHandler(self)


class ProgressBar(Progress):
    """A progress bar over all rounds of all runs, with the current activity."""

    def __init__(self, console: Console, num_runs: int, num_rounds: int) -> None:
        super().__init__()
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
        self._task = self._bar.add_task(count(num_runs, "run"), total=num_rounds)

    def __enter__(self) -> Self:
        self._bar.start()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__()
        self._bar.stop()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno > logging.INFO:
            self._bar.console.print(record.getMessage())
        else:
            self._bar.update(self._task, description=record.getMessage())

    def on_start(self, start: Start) -> None:
        self._bar.update(self._task, completed=start.num_completed, total=start.num_rounds)

    def after_evaluation(self, evaluation: Evaluation) -> None:
        self._bar.update(self._task, completed=evaluation.num_completed)


class ProgressLines(Progress):
    """Lines at the start, at the end, whenever the activity changes, and at least every `seconds`."""

    def __init__(
        self, console: Console, path: Path, num_runs: int, num_rounds: int, seconds: float = MAX_SECONDS
    ) -> None:
        super().__init__()
        self._console, self._path, self._num_runs, self._num_rounds = console, path, num_runs, num_rounds
        self._seconds = seconds
        self._started = self._last = time.perf_counter()
        self._completed = self._computed = 0
        self._running = 0.0  # seconds, without compiling
        self._activity, self._has_heading, self._has_started = "", False, False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__()
        self._closed.set()
        if error[0] is None:
            if not self._has_started:  # nothing was left
                self._completed = self._num_rounds
            text = "all rounds completed" if self._completed == self._num_rounds else "end"
            self._print(f"{text}: {self._describe()}")

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.INFO:
            self._activity = record.getMessage()
        self._print(record.getMessage())

    def on_start(self, start: Start) -> None:
        self._has_started = True
        self._completed, self._num_rounds = start.num_completed, start.num_rounds

    def after_evaluation(self, evaluation: Evaluation) -> None:
        self._completed = evaluation.num_completed
        self._computed += evaluation.num_new
        self._running += evaluation.seconds

    def _report(self) -> None:
        while not self._closed.wait(self._seconds / 10):
            if self._has_heading and time.perf_counter() - self._last >= self._seconds:
                self._print(f"{self._activity}, {self._describe()}" if self._has_started else self._activity)

    def _describe(self) -> str:
        """For example "620 of 1,500 rounds, 31 rounds/s, 28 s left"; the rate does not count compiling."""
        text = f"{self._completed:,} of {self._num_rounds:,} rounds"
        if self._computed and self._running:
            rate = self._computed / self._running
            text += f", {rate:,.0f} rounds/s" if rate >= 100 else f", {rate:.3g} rounds/s"
            if left := self._num_rounds - self._completed:
                text += f", {duration(left / rate)} left"
        return text

    def _print(self, text: str) -> None:
        if not self._has_heading:  # not before an error that shows that nothing can run
            self._has_heading = True
            size = f"{count(self._num_runs, 'run')}, {count(self._num_rounds, 'round')}"
            self._print(f"{self._path}: {size} in total")
        self._last = time.perf_counter()
        self._console.print(f"[{self._last - self._started:6.1f} s] {text}")
