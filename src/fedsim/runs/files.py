"""Files that are whole or not there: each is written under another name and then moved into place."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedsim.datasets.raw import BROKEN
from fedsim.errors import RunFolderError


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """`write` gets a path beside `path`, which is then moved there; makes the folder. `RunFolderError` if it fails."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(exist_ok=True)
        write(beside)
        os.replace(beside, path)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)


def write_table(path: Path, table: pa.Table) -> None:
    """A table as parquet."""
    write_atomically(path, lambda beside: pq.write_table(table, beside))


def read_table(path: Path, schema: pa.Schema, remedy: str, others: bool = False) -> pa.Table:
    """The table at `path`; `others` of its columns, too. `RunFolderError`, with the `remedy`, where it is broken."""
    try:
        if others:
            schema = pa.schema([*schema, *(field for field in pq.read_schema(path) if field.name not in schema.names)])
        return pq.read_table(path, schema=schema)
    except FileNotFoundError:
        raise RunFolderError(f"{path}: missing; the run is not complete: run its config.toml again") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise RunFolderError(f"{path}: broken: {str(error).splitlines()[0]}; {remedy}") from None


def write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Arrays by name as an .npz file."""

    def write(beside: Path) -> None:
        with beside.open("wb") as file:
            np.savez(file, **arrays)

    write_atomically(path, write)


def read_arrays(path: Path, remedy: str) -> dict[str, np.ndarray]:
    """What `write_arrays` wrote; `RunFolderError`, with the `remedy`, where there is none."""
    try:
        with np.load(path) as file:
            return dict(file)
    except BROKEN as error:
        raise RunFolderError(f"{path}: cannot be read: {str(error).partition(chr(10))[0]}; {remedy}") from None
