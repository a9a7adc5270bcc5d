"""Atomic writes: a file is written under another name and then moved into place."""

import contextlib
import errno
import os
import platform
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedsim.errors import LOAD_ERRORS, RunFolderError, describe_os_error, reason

PORTION_BYTES = 2**24


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


def write_table(path: Path, table: pa.Table) -> None:
    """Writes a table as parquet, with a checksum of each page."""
    write_atomically(path, lambda temporary: pq.write_table(table, temporary, write_page_checksum=True))


def checksum(path: Path) -> int:
    """The CRC-32 of a file. Raises `RunFolderError` if it cannot be read."""
    value = 0
    try:
        with path.open("rb") as file:
            while portion := file.read(PORTION_BYTES):
                value = zlib.crc32(portion, value)
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as error:
        raise RunFolderError(f"{describe_os_error(error)}; use another path") from None
    return value


def _missing(path: Path) -> RunFolderError:
    return RunFolderError(f"{path}: missing; the run is not complete: run its config.toml again")


def read_table(path: Path, schema: pa.Schema, remedy: str, extra_columns: bool = False) -> pa.Table:
    """The columns of `schema`, or with `extra_columns` all columns, of the table at `path`; null where it has none.

    Raises `RunFolderError`, with the `remedy`, if it is broken.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:  # `pq.read_table` imports pandas
            table = file.read()
        for field in [field for field in schema if field.name not in table.column_names]:
            table = table.append_column(field, pa.nulls(len(table), field.type))
        extra = [field for field in table.schema if extra_columns and field.name not in schema.names]
        schema = pa.schema([*schema, *extra])
        return table.select(schema.names).cast(schema)
    except FileNotFoundError:
        raise _missing(path) from None
    except (OSError, pa.ArrowException) as error:
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
