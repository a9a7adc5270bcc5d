"""How the processes of a run end together: an error of one ends all of them, each with one line.

A process that fails writes its message into the key-value store of the coordination service. The others watch it from a
thread, since their programs wait for the one that failed, and end. An error that all processes raise, such as a wrong
key, is simply raised by all of them.
"""

import atexit
import itertools
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import jax

from fedsim.engine import processes
from fedsim.errors import FedsimError, ProcessError, describe_os_error

GRACE_SECONDS = 1.0  # in which the other processes may raise the same error
SERVICE_SECONDS = 3.0  # in which the other processes end
POLL_SECONDS = 0.25
FAILURES = "fedsim/failures"
USER_ERROR, PROGRAM_ERROR, INTERRUPTED = 2, 1, 130  # exit codes
TRANSPORTS = ("Gloo", "NCCL", "Connection reset", "Socket closed")  # in errors of programs that lose a process
LOST = "another process has ended or cannot be reached; the same command resumes the run"
_blocks = itertools.count()  # equal on all processes


@contextmanager
def end_together() -> Iterator[None]:
    """In the block, an error of one process ends all processes; the others leave the block after process 0."""
    if processes.count() == 1:
        yield
        return
    failures = _Failures()
    failures.start()
    logger = logging.getLogger("absl")  # by which Orbax prints the errors that it raises, with traces
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
        processes.decide(lambda: True)
    except BaseException as error:
        lost = ProcessError(LOST) if _is_lost(error) else None
        failures.report(lost or error)
        if lost:
            raise lost from None
        raise
    finally:
        logger.setLevel(level)
        failures.stop()


class _Failures:
    """The failures of all processes in a block, and the thread that ends this process after one of another."""

    def __init__(self) -> None:
        self._folder = f"{FAILURES}/{next(_blocks)}"
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Starts to watch the other processes."""
        self._thread.start()

    def stop(self) -> None:
        """Stops to watch the other processes."""
        self._stopped.set()
        self._thread.join()

    def report(self, error: BaseException) -> None:
        """Tells the other processes of `error`; if they do not raise it as well, this process cannot continue."""
        self.stop()
        code = _exit_code(error)
        failure = {"process": processes.index(), "message": _describe(error), "code": code}
        with suppress(jax.errors.JaxRuntimeError):
            processes.coordination_client().key_value_set(f"{self._folder}/{processes.index()}", json.dumps(failure))
            for _ in range(round((GRACE_SECONDS + 3 * POLL_SECONDS) / POLL_SECONDS)):
                if len(self._read()) == processes.count():
                    time.sleep(2 * POLL_SECONDS)  # until the others have read it, too
                    return
                time.sleep(POLL_SECONDS)
        # At its exit JAX would wait for the processes that have ended.
        atexit.register(_exit, code)

    def _read(self) -> list[dict[str, Any]]:
        """The failures of all processes until now."""
        return [json.loads(text) for _, text in processes.coordination_client().key_value_dir_get(self._folder)]

    def _watch(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            with suppress(jax.errors.JaxRuntimeError):
                if failures := self._read():
                    if not self._stopped.wait(GRACE_SECONDS):
                        first = failures[0]
                        print(f"fedsim: ended by process {first['process']}: {first['message']}", file=sys.stderr)
                        if processes.is_primary():  # the coordination service, without which the others abort
                            time.sleep(SERVICE_SECONDS)
                        _exit(first["code"])
                    return


def _describe(error: BaseException) -> str:
    """One line."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, FedsimError):
        return f"error: {error}"
    if isinstance(error, OSError):
        return f"error: {describe_os_error(error)}"
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return USER_ERROR if isinstance(error, (FedsimError, OSError)) else PROGRAM_ERROR


def _is_lost(error: BaseException) -> bool:
    """Whether a program or the coordination service has lost another process."""
    is_runtime = isinstance(error, (jax.errors.JaxRuntimeError, ValueError))
    return is_runtime and any(transport in str(error) for transport in TRANSPORTS)


def _exit(code: int) -> None:
    """Ends the process without waiting for the others."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)
