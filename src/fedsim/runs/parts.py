"""The rows of a group while it runs: a file for each table and span of rounds, which never changes."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import polars as pl

from fedsim.runs.files import read_bytes, read_table, write_table
from fedsim.runs.schemas import SCHEMAS

REMEDY = "delete it and run again, which computes its runs again"


class Span(NamedTuple):
    """Evaluations whose rows are in one file of each table."""

    first: int
    """The round of the first evaluation."""
    last: int
    """The round of the last one."""


class Parts:
    """The rows of one group, in the folder `path` as <first round>-<last round>-<tables>-<CRC-32>-<table>.parquet,
    with the number of tables of the span.

    `run` is the type of the column "run": ids, or in older folders positions. Methods raise `RunFolderError` if files
    are broken or cannot be written.
    """

    def __init__(self, path: Path, run: type[pl.DataType] = pl.String) -> None:
        self.path, self._run = path, run

    def write(self, span: Span, tables: Mapping[str, pl.DataFrame]) -> None:
        """Writes the rows of a span."""
        for kind, table in tables.items():
            name = f"{span.first:08}-{span.last:08}-{len(tables)}-{{:08x}}-{kind}.parquet"
            write_table(self.path / name, table)

    def spans(self) -> list[Span]:
        """The spans of which all tables are written, in order."""
        files = list(self._files())
        number = Counter(span for span, _ in files)
        return sorted({span for span, path in files if number[span] >= _num_tables(path)})

    def delete(self, after: int = -1) -> None:
        """Deletes rows of rounds after `after`, and incomplete files of a killed process."""
        for span, path in self._files():
            if span.last > after:
                path.unlink()
        for path in self.path.glob(".*.parquet.*"):
            path.unlink()

    def count(self, rounds: int) -> int:
        """The number of files up to this round."""
        return sum(span.last <= rounds for span, _ in self._files())

    def read(self, kind: str) -> list[pl.DataFrame]:
        """The rows of "rounds", "clients" or "info", file by file."""
        schema = pl.Schema(SCHEMAS[kind] | {"run": self._run})
        return [read_table(path, schema, _checksum(path), REMEDY) for _, path in sorted(self._files(kind))]

    def check(self, kind: str) -> None:
        """Raises `RunFolderError` if a table's files have changed since they were written."""
        for _, path in self._files(kind):
            read_bytes(path, _checksum(path), REMEDY)

    def _files(self, kind: str = "*") -> Iterator[tuple[Span, Path]]:
        for path in self.path.glob(f"[0-9]*-{kind}.parquet"):
            first, last, *_ = path.name.split("-")
            yield Span(int(first), int(last)), path


def _num_tables(path: Path) -> int:
    """The number of tables in a file's name; earlier versions wrote none."""
    fields = path.name.split("-")
    return int(fields[2]) if len(fields) == 5 else 1


def _checksum(path: Path) -> int | None:
    """The CRC-32 in a file's name; versions that wrote checksums of pages have none."""
    _, _, *checksum, _ = path.name.split("-")
    return int(checksum[-1], 16) if checksum else None
