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
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from filelock import BaseFileLock, FileLock, Timeout

from fedsim.errors import RunFolderError
from fedsim.runs.files import write_atomically, write_error

NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
HEARTBEAT_SECONDS = 30.0
SILENT_SECONDS = 300.0  # more than clocks of nodes differ
MAX_WAIT_SECONDS = 1800.0


class Lock:
    """The lock file `path`, which stays. Methods raise `RunFolderError` if it cannot be written or locked."""

    def __init__(self, path: Path) -> None:
        self._path, self._holder = path, path.with_suffix(".json")

    @contextmanager
    def hold(self, wait: bool = False) -> Iterator[bool]:
        """Whether this process holds the lock until the end of the block; with `wait`, waits for it half an hour."""
        file_lock = self._acquire(MAX_WAIT_SECONDS if wait else 0.0)
        if file_lock is None and wait:
            raise RunFolderError(f"{self._path}: must be free, but {self.describe_holder()}")
        if file_lock is None:
            yield False
            return
        try:
            with self._named_holder():
                yield True
        finally:
            file_lock.release()

    def is_held(self) -> bool:
        """Whether a process holds the lock; creates no file."""
        if not self._path.exists():
            return False
        try:
            file_lock = self._acquire(0.0)
        except RunFolderError:  # of another user: the heartbeat tells
            with suppress(OSError):
                return time.time() - self._holder.stat().st_mtime < SILENT_SECONDS
            return False
        if file_lock is None:
            return True
        file_lock.release()
        return False

    def describe_holder(self) -> str:
        """For example "another process works on it (pid 4242 on node17, since 2026-05-01 10:32)"."""
        text = "another process works on it"
        try:
            holder, touched = json.loads(self._holder.read_text()), self._holder.stat().st_mtime
            text += f" (pid {holder['pid']} on {holder['host']}, since {_time(holder['since'])})"
        except (OSError, ValueError, KeyError, TypeError):  # it has just started or ended
            return text
        if time.time() - touched < SILENT_SECONDS:
            return text
        return f"{text}, which has been silent since {_time(touched)}; if it is dead, delete {self._path}"

    def _acquire(self, seconds: float) -> BaseFileLock | None:
        """The system's lock; None if it is not free within `seconds`."""
        file_lock = FileLock(self._path, timeout=seconds, fallback_to_soft=False)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file_lock.acquire()
        except Timeout:
            return None
        except OSError as error:
            if error.errno in NO_LOCKS:
                raise RunFolderError(
                    f"{self._path}: this file system has no file locks ({error.strerror}); mount it with them "
                    "(Lustre: -o flock, NFS: without nolock), or choose another --out"
                ) from None
            raise write_error(self._path, error) from None
        return file_lock

    @contextmanager
    def _named_holder(self) -> Iterator[None]:
        """Names this process in a file next to the lock file, and touches that until the end of the block."""
        stop = Event()

        def touch() -> None:
            while not stop.wait(HEARTBEAT_SECONDS):
                try:
                    os.utime(self._holder)
                except OSError:  # the folder is being deleted, or the server is away
                    continue

        holder = {"host": platform.node(), "pid": os.getpid(), "since": time.time()}
        write_atomically(self._holder, lambda temporary: temporary.write_text(json.dumps(holder)))
        Thread(target=touch, name="heartbeat", daemon=True).start()
        try:
            yield
        finally:
            stop.set()
            self._holder.unlink(missing_ok=True)


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
