"""One start: piece after piece while there is time, and a table of what was done and what is left."""

import gc
import json
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from accelerator_parts.ledger import Clock, Ledger, OutOfTime, Piece, Skipped, one_line, short
from accelerator_parts.parts import Parts
from accelerator_parts.table import Table

HERE = str(Path(__file__).parent)
SHOWN = 400  # characters of a result on the terminal


class Session:
    """Runs the parts; what became of each piece is in `report`."""

    def __init__(self, ledger: Ledger, clock: Clock, folders: Sequence[Path], only: Sequence[str], tiny: bool) -> None:
        self.ledger, self.clock, self.only = ledger, clock, only
        self.parts = Parts(ledger, folders, tiny)
        self.table = Table(ledger, clock, folders, tiny)
        self.report: dict[str, str] = {}

    def run(self) -> int:
        """All parts; 1 if a piece failed, 130 if it was interrupted."""
        try:
            for part in self.clock.parts:
                for piece in self._pieces(part):
                    self._take(piece, part)
            for part in self.clock.parts:  # what parts have left of their shares
                for piece in self._pieces(part):
                    if self.report.get(piece.name, "").startswith("left"):
                        self._take(piece, None)
        except KeyboardInterrupt:
            return 130
        except OutOfTime:
            pass
        return 1 if any(outcome.startswith("failed") for outcome in self.report.values()) else 0

    def _take(self, piece: Piece, part: str | None) -> None:
        """Runs a piece in the time of a part (None: all that is left), and reports it."""
        if any(text in piece.name for text in self.only):
            self.report[piece.name] = "left: it did not come to its end"
            self.report[piece.name] = self._attempt(piece, part)

    def _pieces(self, part: str) -> Iterator[Piece]:
        return self.table.pieces() if part == "e" else self.parts.pieces(part)

    def _attempt(self, piece: Piece, part: str | None) -> str:
        """What became of a piece: "done", "done before", "left", "skipped" or "failed", and why."""
        if self.ledger.done(piece.name):
            return self._before(piece)
        expected, left = self.clock.expected(piece), self.clock.left(part)
        if expected > left:
            return f"left: {max(0.0, left):.0f} s are there for it, and about {expected:.0f} s are needed"
        print(f"[{self.clock.left() / 60:.1f} min left] {piece.name}", flush=True)
        started = time.monotonic()
        try:
            results = piece.run()
        except Skipped as reason:
            return f"skipped: {reason}"
        except Exception as error:
            ours = [frame for frame in traceback.extract_tb(error.__traceback__) if HERE in frame.filename]
            place = ours[-1]
            text = f"{one_line(error)} ({Path(place.filename).name}:{place.lineno})"
            self.ledger.write(piece.name, [], error=text)
            print(f"  failed: {text}", file=sys.stderr, flush=True)
            return f"failed: {text}"
        finally:
            gc.collect()  # arrays in cycles hold the device's memory
        seconds = time.monotonic() - started
        self.clock.learn(piece, seconds)
        self.ledger.write(piece.name, results)
        for result in results:
            print(f"  {json.dumps(short(result.settings | result.numbers))[:SHOWN]}", flush=True)
        if not all(result.numbers.get("passed", True) for result in results):
            return f"failed: done in {seconds:.0f} s, and differs by more than it may"
        return f"done in {seconds:.0f} s"

    def _before(self, piece: Piece) -> str:
        return "failed before; --retry runs it again" if self.ledger.failed(piece.name) else "done before"

    def summarise(self) -> None:
        """Prints the table, with what was not come to."""
        for part in self.clock.parts:
            for piece in self.parts.pieces(part) if part != "e" else ():
                if any(text in piece.name for text in self.only):
                    outcome = self._before(piece) if self.ledger.done(piece.name) else "left"
                    self.report.setdefault(piece.name, outcome)
        width = max(map(len, self.report), default=0)
        print()
        for name, outcome in self.report.items():
            print(f"{name:<{width}}  {outcome}")
        print(f"\n{len(self.ledger.lines)} lines in {self.ledger.path}", flush=True)
