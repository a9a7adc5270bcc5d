"""Process locks: lock files, which the operating system releases when a process ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fedsim.errors import RunFolderError


@contextmanager
def lock(path: Path, wait: bool = False) -> Iterator[bool]:
    """Whether this process holds the lock file `path` until the end of the block; with `wait`, waits until it does.

    The file stays. Raises `RunFolderError` if it cannot be written.
    """
    file_lock = FileLock(path, timeout=-1 if wait else 0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file_lock.acquire()
    except Timeout:
        yield False
        return
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be written: {error.strerror or error}") from None
    try:
        yield True
    finally:
        file_lock.release()
