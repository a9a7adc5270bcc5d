"""What is done and how much time is left: pieces of work, one JSON line a result, and the clock.

A result is a line that is written whole, as its piece ends. A piece whose lines are in the file is done; one that
failed has a line that says so, and is done as well unless it is asked for again.
"""

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHARES = {"a": 0.12, "b": 0.3, "c": 0.12, "d": 0.08, "e": 0.38}  # of the time; what a part leaves is the next one's
MARGIN = 5.0  # seconds to end in
PACE = 0.2, 5.0  # how far the guesses of a part are corrected by what its pieces took


class OutOfTime(BaseException):
    """The time is over. No `Exception`, so that no piece takes it for an error of its own."""


class Skipped(Exception):  # noqa: N818
    """A piece that cannot be run here, or not now, and why."""


@dataclass(frozen=True)
class Result:
    """What was measured, and with which settings."""

    settings: dict[str, Any]
    numbers: dict[str, Any]


@dataclass(frozen=True)
class Piece:
    """Work that is done as a whole or not at all. `run` returns its results; it may write others as they come."""

    name: str  # unique; begins with the letter of its part
    seconds: float  # a guess, compiling included, on a current accelerator
    run: Callable[[], Sequence[Result]]


class Ledger:
    """The file of results. `common` is what every line says, of the device and the command."""

    def __init__(self, path: Path, common: dict[str, Any], retry: bool = False) -> None:
        self.path, self.common, self.retry = path, common, retry
        text = path.read_text() if path.is_file() else ""
        self.lines = [line for line in map(_parsed, text.splitlines()) if line is not None and self._is_mine(line)]
        self._ends_whole = text.endswith("\n") or not text

    def _is_mine(self, line: dict[str, Any]) -> bool:
        """Whether a line is of the same device, and of as large a measurement."""
        return all(line.get(key) == self.common[key] for key in ("device", "num_devices", "tiny"))

    def find(self, name: str) -> list[dict[str, Any]]:
        """The lines of a piece."""
        return [line for line in self.lines if line["name"] == name]

    def failed(self, name: str) -> bool:
        """Whether a piece, or the last of its results, failed when it was run last."""
        found = self.find(name)
        return bool(found) and ("error" in found[-1] or "error" in found[-1]["numbers"])

    def done(self, name: str) -> bool:
        """Whether a piece need not be run (again)."""
        return bool(self.find(name)) and not (self.retry and self.failed(name))

    def write(self, name: str, results: Sequence[Result], error: str | None = None) -> None:
        """Appends the lines of a piece, all of them or (where the machine stops) at worst a broken last one."""
        head: dict[str, Any] = {"part": name[0], "name": name}
        found = [head | {"settings": one.settings, "numbers": one.numbers} for one in results]
        if error is not None:
            found = [head | {"error": error}]
        lines = [short(line) | self.common for line in found]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(("" if self._ends_whole else "\n") + "".join(json.dumps(line) + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        self._ends_whole = True
        self.lines += lines


def _parsed(text: str) -> dict[str, Any] | None:
    """A line of the file, if it is whole."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and "name" in line else None


def one_line(error: BaseException) -> str:
    """What went wrong, shortly."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def short(value: Any) -> Any:
    """`value` with four significant digits in all its numbers; what is no finite number becomes None."""
    if isinstance(value, dict):
        return {key: short(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [short(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if abs(value) < float("inf") else None
    return value


@dataclass
class Clock:
    """How much of the time is left to a part: until the end of its share, and of those before it."""

    seconds: float
    parts: Sequence[str]
    started: float = field(default_factory=time.monotonic)
    took: dict[str, list[float]] = field(default_factory=dict)  # a part's pieces: seconds over the guess

    def left(self, part: str | None = None) -> float:
        """Seconds that are left to a part, or in all."""
        share = 1.0
        if part is not None:
            until = self.parts[: self.parts.index(part) + 1]
            share = sum(SHARES[one] for one in until) / sum(SHARES[one] for one in self.parts)
        return self.started + share * self.seconds - MARGIN - time.monotonic()

    def expected(self, piece: Piece) -> float:
        """The guess, corrected by what this part's pieces took until now."""
        ratios = self.took.get(piece.name[0])
        least, most = PACE
        return piece.seconds * (min(most, max(least, statistics.median(ratios))) if ratios else 1.0)

    def learn(self, piece: Piece, seconds: float) -> None:
        """A piece is done and took so long."""
        if piece.seconds:
            self.took.setdefault(piece.name[0], []).append(seconds / piece.seconds)
