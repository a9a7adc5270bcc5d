"""Who works on what: locks on files, which the operating system takes from a process that ends, however it ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fedsim.errors import RunFolderError


@contextmanager
def lock(path: Path, wait: bool = False) -> Iterator[bool]:
    """Whether this process alone holds the lock file `path`, until the end of the block; `wait` until it does.

    The file stays. Raises `RunFolderError` where it cannot be written.
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
