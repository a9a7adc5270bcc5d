"""`fedsim run --distributed`: one run on several processes, on one machine or many."""

import argparse
import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TextIO

from fedsim.errors import ConfigError

OPTIONS = ("coordinator", "num_processes", "process_id")
NAMES = "--coordinator, --num-processes and --process-id"
LOST = b"JAX distributed service detected fatal errors"  # by which JAX's runtime aborts the process
_handler: object = None  # of aborts; what C calls must outlive the call


def is_requested(options: argparse.Namespace) -> bool:
    """Whether this process is one of several. Raises `ConfigError` if options are wrong or missing."""
    given = [getattr(options, name) is not None for name in OPTIONS]
    if not any(given):
        return bool(options.distributed)
    if not all(given):
        raise ConfigError(f"--coordinator: must be used with all of {NAMES}, or use --distributed alone")
    host, _, port = options.coordinator.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--coordinator: must be HOST:PORT, got {options.coordinator}")
    if options.num_processes < 1:
        raise ConfigError(f"--num-processes: must be an integer >= 1, got {options.num_processes}")
    if not 0 <= options.process_id < options.num_processes:
        number = options.num_processes - 1
        raise ConfigError(f"--process-id: must be an integer from 0 to {number}, got {options.process_id}")
    return True


@contextmanager
def connected(options: argparse.Namespace) -> Iterator[None]:
    """In the block, this process is one of a run's; all of them end together."""
    from fedsim.engine import ending, processes

    _shorten_aborts(ending.LOST, ending.USER_ERROR)
    processes.connect(options.coordinator, options.num_processes, options.process_id)
    with ending.end_together():
        yield


def _shorten_aborts(message: str, code: int) -> None:
    """Where JAX's runtime aborts because it has lost another process, prints `message` and exits with `code` instead.

    The runtime writes many lines before, past Python's streams, so these go to a file from now on. It is shown if the
    program aborts for another reason.
    """
    global _handler
    native = tempfile.TemporaryFile()  # noqa: SIM115  # open until the program ends
    sys.stdout, sys.stderr = (_redirect(stream, native) for stream in (sys.stdout, sys.stderr))

    def handle(number: int) -> None:
        native.seek(0)
        text = native.read()
        is_lost = LOST in text
        os.write(sys.stderr.fileno(), f"fedsim: error: {message}\n".encode() if is_lost else text)
        if is_lost:
            os._exit(code)

    _handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(handle)
    ctypes.CDLL(None).signal(signal.SIGABRT, _handler)


def _redirect(stream: TextIO, native: IO[bytes]) -> TextIO:
    """A stream to where `stream` goes; what is written past Python goes to `native` from now on."""
    stream.flush()
    number = stream.fileno()
    copy = os.fdopen(os.dup(number), "w", buffering=1, encoding=stream.encoding, errors="replace")
    os.dup2(native.fileno(), number)
    return copy
