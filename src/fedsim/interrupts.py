"""Ctrl-C in the program `fedsim`. Other programs that import fedsim are not affected.

A `KeyboardInterrupt` while modules are imported or plans are made may be swallowed, so Ctrl-C ends the process at once,
except while runs are in progress, which save what they have.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130  # exit code
RETRY_SECONDS = 0.02
message = "fedsim: interrupted"
"""What Ctrl-C prints. Commands set it."""
_raises = False


def install_handler() -> None:
    """Ends the process at Ctrl-C, unless it ignores Ctrl-C, as background jobs of a shell do."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """In the block, the first Ctrl-C raises `KeyboardInterrupt` and the second one ends the process.

    An error that follows the first one is a `KeyboardInterrupt`, too: extension modules that are being imported raise
    an `ImportError` instead.
    """
    global _raises
    hook = sys.unraisablehook

    def raise_again(ignored: "sys.UnraisableHookArgs") -> None:
        """Sends the signal again if Python has ignored the exception, as in callbacks of the garbage collector."""
        global _raises
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            return hook(ignored)
        _raises = True
        threading.Timer(RETRY_SECONDS, os.kill, (os.getpid(), signal.SIGINT)).start()

    _raises, sys.unraisablehook = True, raise_again
    try:
        yield
    except Exception:
        if _raises:
            raise
        raise KeyboardInterrupt from None
    finally:
        _raises, sys.unraisablehook = False, hook


def _stop(number: int, frame: FrameType | None) -> None:
    global _raises
    if _raises:
        _raises = False
        raise KeyboardInterrupt
    with contextlib.suppress(Exception):  # a stream that is being written to
        sys.stdout.flush()
    os.write(sys.stderr.fileno(), f"{message}\n".encode())
    os._exit(INTERRUPTED)
