"""Tables in files: CSV and Parquet, a file or a folder of parts as Spark and Dask write them."""

import csv
import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from urllib.parse import unquote

import polars as pl

from fedsim.datasets.client_ids import MISSING
from fedsim.datasets.csv_files import numbers_if_canonical, parse, read_cells
from fedsim.datasets.images import walk
from fedsim.errors import LOAD_ERRORS, DataError, reason

SUFFIXES = (".csv", ".tsv", ".parquet")
COMPRESSED = (".gz", ".bz2")  # of .csv and .tsv files
SPLIT = re.compile(r"(?<![a-z])(train|test|val|valid|validation|dev)(?![a-z])", re.IGNORECASE)
LOGS = ("_delta_log", ".hoodie")  # say which files of a folder are current
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def is_table(path: Path) -> bool:
    """Whether `path` has the name of a table, or is a folder of its parts, neither of arrays nor in LEAF's format."""
    is_other = any(path.glob("*.npy")) or any(path.glob("train/*.json*"))
    return (bool(_parts(path)) and not is_other) if path.is_dir() else _suffix(path) in SUFFIXES


def read(
    path: Path, label: str, client: str = "", as_texts: Collection[str] | None = ()
) -> tuple[pl.DataFrame, set[str]]:
    """The table in the file or folder at `path`, and which columns may be the index of a frame.

    Columns of a CSV file that are `as_texts` (None: all) are left as they are there, except for label and client.
    Raises `DataError`.
    """
    if not (path.is_dir() or _suffix(path) in SUFFIXES):
        raise DataError(f"{path}: must be a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file, or a folder of them")
    if not path.exists():
        raise DataError(f"{path}: no such file")
    if any((path / log).exists() for log in LOGS):
        raise DataError(f"{path}: must have no log of versions (Delta, Hudi); save the current rows as .parquet")
    parts = _parts(path) if path.is_dir() else [path]
    if not parts:
        raise DataError(f"{path}: must have {', '.join(SUFFIXES)} files, got none")
    splits = {split.lower() for part in parts for split in SPLIT.findall(str(part.relative_to(path)))}
    if len(splits) > 1:
        shown = " and ".join(sorted(splits))
        raise DataError(
            f"{path}: must hold one table, got {shown}; give one, of which data.test_fraction is a test set"
        )
    table, folders, separators, index = pl.DataFrame(), set(), set(), set()
    for part in parts:
        try:
            if _suffix(part) == ".parquet":
                rows = pl.read_parquet(part, glob=False, hive_partitioning=False)
                index |= _index_columns(part)
            else:
                rows, separator = read_cells(part)
                separators.add(separator)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, csv.Error, *LOAD_ERRORS) as error:
            problem = reason(error)
            if re.search("expected after|end of data", problem):
                problem += "; close quotes, double those within a cell, and let a separator follow them"
            if re.search("utf-?8", problem, re.IGNORECASE):
                problem = f"must be UTF-8 text; convert it: iconv -f LATIN1 -t UTF-8 {part.name} > new{_suffix(part)}"
            what = "cannot be read" if isinstance(error, PermissionError) else f"not a {_suffix(part)} table"
            raise DataError(f"{part}: {what}: {problem}") from None
        names = dict(name.split("=", 1) for name in part.relative_to(path).parts[:-1] if "=" in name)
        cells = {name: None if value == NO_PARTITION else unquote(value) for name, value in names.items()}
        rows = rows.with_columns(pl.lit(value, pl.String).alias(name) for name, value in cells.items())
        table = concatenate(f"{part}: must have the types of the other files", [table, rows])
        folders |= set(names)
    columns = {}
    for column in table:
        name, is_name = column.name, column.name in (label, client)
        is_csv = bool(separators) and column.dtype == pl.String
        if is_csv and not is_name and (as_texts is None or name in as_texts):
            column = column.replace(list(MISSING), None)
        elif is_csv and name not in folders:
            can_have_commas = "," not in separators and name != client
            column = parse(f"{path}: column {name!r}", column, is_name, can_have_commas)
        if name in folders or (is_csv and is_name):
            column = numbers_if_canonical(path, column, is_label=name == label)
        columns[name] = column
    return pl.DataFrame(columns), index


def concatenate(problem: str, tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The rows of all tables, with columns in any order; numbers get a type for all, and categories are texts.

    Raises `DataError` with the `problem` if a column has other types, too, or integers that would be rounded.
    """
    tables = [table.cast({pl.Categorical: pl.String, pl.Enum: pl.String}) for table in tables]
    try:
        rows = pl.concat(tables, how="diagonal_relaxed")
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{problem}: {reason(error)}") from None
    for name, kind in rows.schema.items():
        columns = [table[name] for table in tables if name in table.columns]
        kinds = {column.dtype for column in columns} - {pl.Null}
        if len(kinds) > 1 and not all(kind.is_numeric() for kind in kinds):
            raise DataError(f"{problem}: column {name!r} has {' and '.join(sorted(map(str, kinds)))}")
        for column in columns if len(kinds) > 1 else ():
            rounded = column.filter(column.cast(kind).cast(column.dtype, strict=False).ne_missing(column))
            if len(rounded):
                raise DataError(f"{problem}: column {name!r} has {rounded[0]}, which {kind} rounds")
    return rows


def _suffix(path: Path) -> str:
    """The suffix that tells the format, in lower case."""
    name = path.name.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    return Path(name).suffix


def _parts(folder: Path) -> list[Path]:
    """The files of a table in the folder and those below, without logs and metadata."""
    is_part = lambda path: _suffix(path) in SUFFIXES and not re.search(r"(^|/)[._]", str(path.relative_to(folder)))
    is_empty = lambda path: path.stat().st_size == 0 and _suffix(path) != ".parquet"  # as of Spark
    paths = (Path(place, name) for place, _, names in walk(folder) for name in names)
    return sorted(path for path in paths if path.is_file() and is_part(path) and not is_empty(path))


def _index_columns(path: Path) -> set[str]:
    """The columns of a Parquet file that pandas wrote as the index of a frame."""
    try:
        index = json.loads(pl.read_parquet_metadata(path)["pandas"])["index_columns"]
        return {name for name in index if isinstance(name, str)}
    except (KeyError, TypeError, ValueError):  # written by other programs
        return set()
