"""Progress of a run in a pipe: a line at the start, at the end, and regularly in between."""

import io
import re
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from rich.console import Console

from fedsim.runs.events import Evaluated, GroupSkipped, GroupStarted, Started, Status
from fedsim.terminal import ProgressLines


def lines_of(events, seconds=1000.0, error=None):
    """The lines that are written; a number among the events is a pause in seconds."""
    file = io.StringIO()
    lines = ProgressLines(Console(file=file, width=200), Path("runs/x"), seconds)
    with pytest.raises(error) if error else nullcontext(), lines:
        for event in events:
            time.sleep(event) if isinstance(event, float) else lines(event)
        if error:
            raise error
    return [re.sub(r"^\[ *[0-9.]+ s\] ", "", line) for line in file.getvalue().splitlines()]


def test_start_and_end():
    events = [
        Started(3, 30),
        Status(0, 2, "fedavg, 1 run", "kept"),
        GroupSkipped(0, 10),
        Status(1, 2, "arfl, 2 runs", "running"),
        GroupStarted(1, 5, 10),
        Evaluated(1, 10, {}, 10, None),
    ]
    first, kept, running, resumed, end = lines_of(events)
    assert first == "runs/x: 3 runs, 30 rounds in total"
    assert (kept, running) == ("group 1/2 fedavg, 1 run: kept", "group 2/2 arfl, 2 runs: running")
    assert resumed == "resumes after round 5"
    assert re.fullmatch(r"all rounds completed: 30 of 30 rounds, [0-9.e+]+ rounds/s", end)


def test_lines_are_written_between_events():
    events = [Started(1, 1000), Status(0, 1, "arfl, 1 run", "running"), Evaluated(0, 5, {}, 5, None), 0.5]
    between = lines_of(events, seconds=0.05)[2:-1]
    assert between
    assert all(
        re.fullmatch(r"group 1/1 arfl, 1 run: running, 5 of 1,000 rounds, .* rounds/s, .* left", line)
        for line in between
    )


def test_the_rate_does_not_count_compiling():
    """100 rounds in 0.1 s, after 0.4 s of compiling: 1,000 rounds/s, less what a busy machine adds."""
    compiling, running = (Status(0, 1, "arfl, 1 run", text) for text in ("compiling", "running"))
    end = lines_of([Started(1, 100), compiling, 0.4, running, 0.1, Evaluated(0, 5, {}, 100, None), compiling, 0.4])[-1]
    rate = float(re.search(r"(\S+) rounds/s", end)[1])
    assert 300 < rate <= 1000


def test_no_completion_is_reported_after_an_error():
    assert lines_of([Started(1, 10)], error=KeyboardInterrupt) == ["runs/x: 1 run, 10 rounds in total"]
