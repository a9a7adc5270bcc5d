"""Tables in files: CSV and Parquet, a file or a folder of parts as Spark and Dask write them.

In a CSV file, labels and clients are texts unless all are written as a program writes numbers, and the cells that
pandas takes for missing are missing. Other columns are numbers, truth values or times if all their texts are.
"""

import bz2
import csv
import datetime
import gzip
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl

from fedsim.datasets.client_ids import MISSING, NUMBER
from fedsim.datasets.column_checks import MAX_EXACT
from fedsim.errors import LOAD_ERRORS, DataError, reason

SUFFIXES = (".csv", ".tsv", ".parquet")
COMPRESSED = (".gz", ".bz2", ".zst")  # of .csv and .tsv files
OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\x28\xb5\x2f\xfd": lambda path, _: _open_zstd(path)}
ENCODINGS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}  # by byte-order mark
SEPARATORS = ",;\t|"
QUOTED = re.compile(r'"[^"]*"')
EXCEL = re.compile(r"sep=(.)\r?\n")  # the first line of some files for Excel
COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")  # instead of a decimal point
GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})?")  # may be thousands
INTEGER = re.compile(r"0|-?[1-9]\d{0,17}")
TIME = r"^(\d{4}-\d\d-\d\d([T ]|$))?(\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$"
SPLIT = re.compile(r"(?<![a-z])(train|test|val|valid|validation|dev)(?![a-z])", re.IGNORECASE)
LOGS = ("_delta_log", ".hoodie")  # say which files of a folder are current
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def is_table(path: Path) -> bool:
    """Whether `path` has the name of a table, or is a folder of its parts, neither of arrays nor in LEAF's format."""
    is_other = any(path.glob("*.npy")) or any(path.glob("train/*.json*"))
    return (bool(_parts(path)) and not is_other) if path.is_dir() else _suffix(path) in SUFFIXES


def read(path: Path, label: str, client: str = "") -> tuple[pl.DataFrame, set[str]]:
    """The table in the file or folder at `path`, and which columns may be the index of a frame. Raises `DataError`."""
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
                rows, separator = _read_csv(part)
                separators.add(separator)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, csv.Error, *LOAD_ERRORS) as error:
            problem = reason(error)
            if re.search("utf-?8", problem, re.IGNORECASE):
                problem = f"must be UTF-8 text; convert it: iconv -f LATIN1 -t UTF-8 {part.name} > new{_suffix(part)}"
            raise DataError(f"{part}: not a {_suffix(part)} table: {problem}") from None
        names = dict(name.split("=", 1) for name in part.relative_to(path).parts[:-1] if "=" in name)
        cells = {name: None if value == NO_PARTITION else unquote(value) for name, value in names.items()}
        rows = rows.with_columns(pl.lit(value, pl.String).alias(name) for name, value in cells.items())
        table = concatenate(f"{part}: must have the types of the other files", [table, rows])
        folders |= set(names)
    is_csv, columns = bool(separators), {}
    for column in table:
        name, is_name = column.name, column.name in (label, client)
        if is_csv and name not in folders:
            can_have_commas = "," not in separators and name != client
            column = _parse(f"{path}: column {name!r}", column, is_name, can_have_commas)
        if name in folders or (is_csv and is_name):
            column = _numbers_if_canonical(path, column, is_label=name == label)
        columns[name] = column
    return pl.DataFrame(columns), index


def concatenate(problem: str, tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The rows of all tables, with columns in any order; numbers get a type for all, and categories are texts.

    Raises `DataError` with the `problem` if a column has other types, too, or integers that would be rounded.
    """
    tables = [table.cast({pl.Categorical: pl.String, pl.Enum: pl.String}) for table in tables]
    rows = pl.concat(tables, how="diagonal_relaxed")
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
    return sorted(path for path in folder.rglob("*") if path.is_file() and is_part(path) and not is_empty(path))


def _index_columns(path: Path) -> set[str]:
    """The columns of a Parquet file that pandas wrote as the index of a frame."""
    try:
        index = json.loads(pl.read_parquet_metadata(path)["pandas"])["index_columns"]
        return {name for name in index if isinstance(name, str)}
    except (KeyError, TypeError, ValueError):  # written by other programs
        return set()


def _open_zstd(path: Path) -> io.BytesIO:
    lines = pl.read_csv(path, has_header=False, infer_schema=False, quote_char=None, separator="\x01").to_series()
    return io.BytesIO("\n".join(line or "" for line in lines).encode())


def _read_csv(path: Path) -> tuple[pl.DataFrame, str]:
    """The cells of a CSV file as texts, and what separates them."""
    with path.open("rb") as file:
        start = file.read(4)
    with next((opener for magic, opener in OPENERS.items() if start.startswith(magic)), open)(path, "rb") as file:
        data = file.read()
    text = data.decode(ENCODINGS.get(data[:2], "utf-8-sig"))
    if "\0" in text:
        raise ValueError("it is not text; save the table as CSV or Parquet")
    named = EXCEL.match(text)
    text = text[named.end() if named else 0 :].lstrip("\r\n")
    text = text if "\n" in text else text.replace("\r", "\n")
    if "\n" not in text:
        raise ValueError("it has no rows")
    lines = [line for line in QUOTED.sub("text", text[: 2**16]).splitlines() if line.strip()][:2]  # texts have commas
    separator = named[1] if named else max(SEPARATORS, key=lambda s: min(line.count(s) for line in lines))
    data, width, is_row = text.encode(), 0, []
    for row in csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=""), delimiter=separator):
        width = width or len(row)
        if row and len(row) != width:  # which Polars fills
            raise ValueError(f"the header has {width} columns, but a row has {len(row)}: {separator.join(row)}")
        is_row.append(bool(row))
    rows = pl.read_csv(data, has_header=False, infer_schema=False, separator=separator).filter(pl.Series(is_row))
    names = [(name or "").strip() for name in rows.row(0)]
    names = [name if name or "" not in names[:i] else f"Unnamed: {i}" for i, name in enumerate(names)]
    if repeated := next((name for i, name in enumerate(names) if name in names[:i]), None):
        raise ValueError(f"columns must have different names, got {repeated!r} more than once; rename them")
    return rows[1:].rename(dict(zip(rows.columns, names, strict=True))), separator


def _parse(subject: str, texts: pl.Series, is_name: bool, can_have_commas: bool) -> pl.Series:
    """Texts without spaces around them, as numbers unless they are names.

    Raises `DataError` about the `subject` if texts differ in these spaces only.
    """
    column = texts.str.strip_chars().replace(list(MISSING), None)
    column = _with_points(column) if can_have_commas else column
    column = column if is_name else _numbers(column)
    if column.dtype == pl.String:
        values = [text for text in texts.unique(maintain_order=True) if text and text.strip() not in MISSING]
        if twins := _twins(values, str.strip):
            raise DataError(f"{subject} has {twins[0]!r} and {twins[1]!r}, which differ in spaces; remove these")
    return column


def _with_points(texts: pl.Series) -> pl.Series:
    """Texts such as 0,5 with points; the same texts if others are among them."""
    values = texts.unique().drop_nulls().to_list()
    is_decimal = any("," in value for value in values) and all(map(COMMA.fullmatch, values))
    is_decimal = is_decimal and not all(map(GROUPED.fullmatch, values))
    return texts.str.replace(",", ".", literal=True) if is_decimal else texts


def _numbers(texts: pl.Series) -> pl.Series:
    """Texts as numbers, truth values or times; the same texts if others are among them.

    Also the same texts if two of them would be one number and may be names: 007 and 7, or integers that float64 rounds.
    """
    for kind in (pl.Int64, pl.UInt64, pl.Float64):
        numbers = texts.cast(kind, strict=False)
        if numbers.null_count() == texts.null_count():
            may_be_names = kind != pl.Float64 or (numbers.abs().max() or 0) >= MAX_EXACT
            merges = may_be_names and numbers.n_unique() < texts.str.strip_prefix("+").n_unique()
            return texts if merges else numbers
    if (words := texts.str.to_lowercase()).is_in(["true", "false"]).all():
        return words == "true"
    is_time = texts.str.contains(TIME).all()  # which is refused or left out, so that its value has no part
    return pl.Series(texts.name, [datetime.time()] * len(texts)) if is_time else texts


def _twins(texts: Iterable[str], key: Callable[[str], Any]) -> tuple[str, str] | None:
    """Two different texts with the same `key`, if there are any."""
    first: dict[Any, str] = {}
    return next(((other, text) for text in texts if (other := first.setdefault(key(text), text)) != text), None)


def _numbers_if_canonical(path: Path, column: pl.Series, is_label: bool) -> pl.Series:
    """Texts as the numbers that they are; the same texts if that could merge two, as 007 and 7, 1e5 and 100000.

    Labels that are not all whole are numbers to be predicted. Raises `DataError` if two of these are one number.
    """
    texts = column.unique(maintain_order=True).drop_nulls().to_list()
    if all(map(INTEGER.fullmatch, texts)):
        return column.cast(pl.Int64)
    if not all(map(NUMBER.fullmatch, texts)):
        return column
    if not all(repr(float(text)) == text for text in texts):
        if not is_label or all(float(text).is_integer() for text in texts):
            return column
        if twins := _twins(filter(float, texts), float):  # 0 may be 0.0 or -0
            shown = " and ".join(twins)
            raise DataError(f"{path}: labels {shown} are one number; write them alike, or as other names")
    return column.cast(pl.Float64)
