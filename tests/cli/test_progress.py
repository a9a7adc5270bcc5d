"""Progress of a run in a pipe: a line at the start, at the end, and regularly in between."""

import io
import logging
import re
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from rich.console import Console

from fedsim.runs.callbacks import Evaluation, Start
from fedsim.terminal import ProgressBar, ProgressLines


def start(num_completed):
    return Start("fedavg-1", (0,), (), -1, num_completed, 30, {})


def evaluation(num_new, num_completed, seconds):
    return Evaluation("fedavg-1", 5, {}, num_new, num_completed, seconds, False, dict, list)


def lines_of(calls, num_rounds=30, seconds=1000.0, error=None):
    """The lines that are written. A call is a text that is logged, a number of seconds to wait, or what hooks get."""
    file = io.StringIO()
    lines = ProgressLines(Console(file=file, width=200), Path("runs/x"), 3, num_rounds, seconds)
    with pytest.raises(error) if error else nullcontext(), lines:
        for call in calls:
            match call:
                case str():
                    logging.getLogger("fedsim").info(call)
                case float():
                    time.sleep(call)
                case Start():
                    lines.on_start(call)
                case _:
                    assert not lines.after_evaluation(call)
        if error:
            raise error
    logging.getLogger("fedsim").info("after the end")
    assert not logging.getLogger("fedsim").isEnabledFor(logging.INFO)  # as before
    return [re.sub(r"^\[ *[0-9.]+ s\] ", "", line) for line in file.getvalue().splitlines()]


def test_start_and_end():
    calls = ["group 1/2 fedavg: kept", "group 2/2 arfl: running", start(20), evaluation(10, 30, 0.5)]
    assert lines_of(calls) == [
        "runs/x: 3 runs, 30 rounds in total",
        "group 1/2 fedavg: kept",
        "group 2/2 arfl: running",
        "all rounds completed: 30 of 30 rounds, 20 rounds/s",  # those of this start
    ]


def test_warnings_are_written_and_are_no_activity():
    def log(level, message):
        progress.emit(logging.makeLogRecord({"levelno": level, "msg": message}))

    for make in (lambda console: ProgressBar(console, 3, 30), lambda console: ProgressLines(console, Path("x"), 3, 30)):
        file = io.StringIO()
        with make(Console(file=file, width=200)) as progress:
            log(logging.INFO, "running")
            log(logging.WARNING, "computed again: 2 runs")
            progress.on_start(start(20))
        assert "computed again: 2 runs\n" in file.getvalue()
    assert "running" in progress._activity


def test_lines_are_written_between_evaluations():
    between = lines_of(["running", start(0), evaluation(5, 5, 1.0), 0.5], seconds=0.05)[2:-1]
    assert set(between) == {"running, 5 of 30 rounds, 5 rounds/s, 5 s left"}


def test_what_is_incomplete_is_not_called_completed():
    assert lines_of([start(0), evaluation(5, 5, 1.0)])[-1] == "end: 5 of 30 rounds, 5 rounds/s, 5 s left"
    assert lines_of([])[-1] == "all rounds completed: 30 of 30 rounds"  # nothing was left


def test_no_completion_is_reported_after_an_error():
    assert lines_of([], error=KeyboardInterrupt) == []  # such as of a folder that cannot be used
    assert lines_of(["running"], error=KeyboardInterrupt) == ["runs/x: 3 runs, 30 rounds in total", "running"]
