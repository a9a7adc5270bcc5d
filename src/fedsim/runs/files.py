"""Atomic writes: a file is written under another name and then moved into place. Checks of what is read."""

import contextlib
import errno
import os
import platform
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec

from fedsim.errors import RunFolderError, describe_os_error, reason


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Calls `write` with a temporary path, which is then moved to `path`; creates the folder if needed.

    Raises `RunFolderError` if that fails.
    """
    temporary = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}")  # other hosts have the same numbers
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise write_error(path, error) from None
    finally:
        with contextlib.suppress(OSError):  # its folder may be a file
            temporary.unlink()


def write_error(path: Path, error: Exception) -> RunFolderError:
    """Says why `path` cannot be written. Libraries hide a full disk in long messages."""
    for full in map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)):
        if full in str(error):
            return RunFolderError(f"{path}: cannot be written: {full}; free some space and repeat the command")
    return RunFolderError(f"{path}: cannot be written: {reason(error)}")


def read_bytes(path: Path, checksum: int | None, remedy: str) -> bytes:
    """A file's contents. Raises `RunFolderError`, with the `remedy`, if it is missing or has another CRC-32.

    polars does not verify the checksums of pages.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise RunFolderError(f"{path}: missing; {remedy}") from None
    except OSError as error:
        raise RunFolderError(f"{describe_os_error(error)}; use another path") from None
    if checksum is not None and zlib.crc32(data) != checksum:
        raise RunFolderError(f"{path}: broken: it does not match its checksum; {remedy}")
    return data


class _Report(TypedDict, total=False):
    claims: Annotated[str, msgspec.Meta(pattern=".:.")] | None


class _Config(TypedDict, total=False):
    """What reports read of a configuration."""

    name: str
    report: _Report
    sweep: list[dict[str, Any]]


def check_config(tables: dict[str, Any]) -> dict[str, Any]:
    """The `tables` of a configuration that was run. Raises `ValueError` if what reports read of it has another form."""
    msgspec.convert(tables, _Config)
    return tables


def has_checkpoint(path: Path) -> bool:
    """Whether the folder `path` has a checkpoint."""
    return any(entry.name.isdigit() for entry in path.glob("*"))
