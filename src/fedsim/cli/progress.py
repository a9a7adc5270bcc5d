"""How far a run is: a bar in a terminal, lines in a pipe or a file."""

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from fedsim.cli.console import terminal
from fedsim.report.names import count, duration
from fedsim.runs.events import Begun, Evaluated, Event, Kept, Started, Status

SECONDS = 10.0  # between lines, at most


def progress(path: Path) -> "Bar | Lines":
    """Shows what happens in the run folder `path`, on stderr."""
    console = terminal(stderr=True)
    return Bar(console) if console.is_terminal else Lines(console, path)


class Bar:
    """One bar over all rounds of all runs, and what is done at the moment."""

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
            case Started(num_runs, num_rounds):
                self._task = self._bar.add_task(count(num_runs, "run"), total=num_rounds)
            case Status():
                self._bar.update(self._task, description=str(event))
            case Kept(num_rounds=done) | Begun(num_rounds=done) | Evaluated(num_rounds=done):
                self._bar.advance(self._task, done)


class Lines:
    """A line at the start, whenever something else begins, at least every ten seconds, and at the end."""

    def __init__(self, console: Console, path: Path, seconds: float = SECONDS) -> None:
        self._console, self._path, self._seconds = console, path, seconds
        self._started = self._last = time.perf_counter()
        self._rounds = self._kept = self._done = 0
        self._doing = ""
        self._over = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        self._ticker.start()
        return self

    def __exit__(self, error: type[BaseException] | None, *rest: BaseException | TracebackType | None) -> None:
        self._over.set()
        if error is None:
            self._say(f"all rounds are done: {self._so_far()}")

    def __call__(self, event: Event) -> None:
        match event:
            case Started(num_runs, num_rounds):
                self._rounds = num_rounds
                self._say(f"{self._path}: {count(num_runs, 'run')}, {count(num_rounds, 'round')} in all")
            case Status():
                self._doing = str(event)
                self._say(self._doing)
            case Kept(num_rounds=done):
                self._kept += done
            case Begun(after=after, num_rounds=done):
                self._kept += done
                if after >= 0:
                    self._say(f"goes on after round {after}")
            case Evaluated(num_rounds=done):
                self._done += done

    def _tick(self) -> None:
        while not self._over.wait(self._seconds / 10):
            if time.perf_counter() - self._last >= self._seconds:
                self._say(f"{self._doing}, {self._so_far()}")

    def _so_far(self) -> str:
        """For example "620 of 1,500 rounds, 31 rounds/s, 28 s left"; time goes by what was done since the start."""
        done = self._kept + self._done
        text = f"{done:,} of {self._rounds:,} rounds"
        if self._done:
            rate = self._done / (time.perf_counter() - self._started)
            text += f", {rate:.3g} rounds/s"
            if left := self._rounds - done:
                text += f", {duration(left / rate)} left"
        return text

    def _say(self, text: str) -> None:
        self._last = time.perf_counter()
        self._console.print(f"[{self._last - self._started:6.1f} s] {text}", markup=False)
