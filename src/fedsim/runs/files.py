"""Atomic writes: a file is written under another name and then moved into place."""

import contextlib
import errno
import io
import os
import platform
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedsim.errors import LOAD_ERRORS, RunFolderError, describe_os_error, reason


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


def write_table(path: Path, table: pl.DataFrame) -> None:
    """Writes a table as Parquet; the file's CRC-32 replaces "{:08x}" in its name."""
    buffer = io.BytesIO()  # a full disk is then an `OSError`
    table.write_parquet(buffer)
    data = buffer.getvalue()
    name = path.name.format(zlib.crc32(data))
    write_atomically(path.with_name(name), lambda temporary: temporary.write_bytes(data))


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


def read_table(path: Path, schema: pl.Schema, checksum: int | None, remedy: str) -> pl.DataFrame:
    """The columns of `schema`, null where the table at `path` has none.

    Raises `RunFolderError`, with the `remedy`, if it is broken.
    """
    data = read_bytes(path, checksum, remedy)
    columns = pl.DataFrame(schema=dict.fromkeys(schema, pl.Null) | {"run": pl.String})  # numbers in fedsim 0.3
    try:
        table = pl.concat([columns, pl.read_parquet(data)], how="diagonal_relaxed")
        return table.select(schema.names()).cast(schema)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise RunFolderError(f"{path}: broken: {reason(error)}; {remedy}") from None


def write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Writes arrays by name as an .npz file."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **arrays)

    write_atomically(path, write)


def read_arrays(path: Path, remedy: str) -> dict[str, np.ndarray]:
    """The arrays that `write_arrays` wrote. Raises `RunFolderError`, with the `remedy`, if there are none."""
    try:
        with np.load(path) as file:
            return dict(file)
    except LOAD_ERRORS as error:
        raise RunFolderError(f"{path}: cannot be read: {reason(error)}; {remedy}") from None


def has_checkpoint(path: Path) -> bool:
    """Whether the folder `path` has a checkpoint."""
    return any(entry.name.isdigit() for entry in path.glob("*"))
