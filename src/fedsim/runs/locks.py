"""Process locks: the operating system's, which it releases when a process ends, with a file that names the holder.

A file server may take long to release the locks of a node that died. The holder therefore touches its file from time
to time, so that others can say since when it has been silent.
"""

import errno
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from filelock import BaseFileLock, FileLock, Timeout

from fedsim.errors import RunFolderError
from fedsim.runs.files import write_atomically, write_error

NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
HEARTBEAT_SECONDS = 30.0
SILENT_SECONDS = 300.0  # more than clocks of nodes differ
MAX_WAIT_SECONDS = 1800.0


@contextmanager
def lock(path: Path, wait: bool = False) -> Iterator[bool]:
    """Whether this process holds the lock file `path` until the end of the block; with `wait`, waits until it does.

    The file stays. Raises `RunFolderError` if it cannot be written or locked, or after half an hour of waiting.
    """
    file_lock = _acquire(path, MAX_WAIT_SECONDS if wait else 0.0)
    if file_lock is None and wait:
        raise RunFolderError(f"{path}: must be free, but {describe_holder(path)}")
    if file_lock is None:
        yield False
        return
    try:
        with _named_holder(path):
            yield True
    finally:
        file_lock.release()


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock file `path`; creates none."""
    if not path.exists():
        return False
    try:
        file_lock = _acquire(path, 0.0)
    except RunFolderError:  # of another user: the heartbeat tells
        holder = _holder_file(path)
        return holder.exists() and time.time() - holder.stat().st_mtime < SILENT_SECONDS
    if file_lock is None:
        return True
    file_lock.release()
    return False


def _acquire(path: Path, seconds: float) -> BaseFileLock | None:
    """The lock; None if it is not free within `seconds`."""
    file_lock = FileLock(path, timeout=seconds, fallback_to_soft=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file_lock.acquire()
    except Timeout:
        return None
    except OSError as error:
        if error.errno in NO_LOCKS:
            raise RunFolderError(
                f"{path}: this file system has no file locks ({error.strerror}); mount it with them (Lustre: -o flock, "
                "NFS: without nolock), or choose another --out"
            ) from None
        raise write_error(path, error) from None
    return file_lock


@contextmanager
def _named_holder(path: Path) -> Iterator[None]:
    """Names this process in a file next to the lock file, and touches that until the end of the block."""
    file, stop = _holder_file(path), Event()

    def touch() -> None:
        while not stop.wait(HEARTBEAT_SECONDS):
            try:
                os.utime(file)
            except OSError:  # the folder is being deleted, or the server is away
                continue

    holder = {"host": platform.node(), "pid": os.getpid(), "since": time.time()}
    write_atomically(file, lambda temporary: temporary.write_text(json.dumps(holder)))
    Thread(target=touch, name="heartbeat", daemon=True).start()
    try:
        yield
    finally:
        stop.set()
        file.unlink(missing_ok=True)


def describe_holder(path: Path) -> str:
    """For example "another process works on it (pid 4242 on node17, since 2026-05-01 10:32)"."""
    text, file = "another process works on it", _holder_file(path)
    try:
        holder, touched = json.loads(file.read_text()), file.stat().st_mtime
        text += f" (pid {holder['pid']} on {holder['host']}, since {_time(holder['since'])})"
    except (OSError, ValueError, KeyError, TypeError):  # it has just started or ended
        return text
    if time.time() - touched < SILENT_SECONDS:
        return text
    return f"{text}, which has been silent since {_time(touched)}; if it is dead, delete {path}"


def _holder_file(path: Path) -> Path:
    return path.with_suffix(".json")


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
