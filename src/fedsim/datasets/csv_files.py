"""Columns of CSV files: cells as texts, and what these texts mean.

Labels and clients are texts unless all are written as a program writes numbers, and the cells that pandas takes for
missing are missing. Other columns are numbers, truth values or times if all their texts are.
"""

import bz2
import csv
import gzip
import io
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from fedsim.datasets.client_ids import MISSING, NUMBER, find_twins
from fedsim.datasets.column_checks import MAX_EXACT
from fedsim.errors import DataError

BATCH_ROWS, MAX_CELL = 1_000, 2**31 - 1
OPENERS: dict[bytes, Callable[..., Any]] = {  # by the first bytes
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
}
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
SEPARATORS = ",;\t|"
QUOTED = re.compile(r'"[^"]*"')
EXCEL = re.compile(r"sep=(.)\r?\n")  # the first line of some files for Excel
COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?", re.ASCII)  # instead of a decimal point
GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})?", re.ASCII)  # may be thousands
INTEGER = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)
PADDED = r"^[+-]?0\d"
CLOCK = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?"
TIMES = {pl.Datetime: rf"^\d{{4}}-[01]\d-[0-3]\d([T ]{CLOCK}(Z|[+-]\d\d:?\d\d)?)?$", pl.Time: f"^{CLOCK}$"}


def read_cells(path: Path) -> tuple[pl.DataFrame, str]:
    """The cells of a CSV file as texts, and what separates them. Raises an error of `LOAD_ERRORS` or `csv.Error`."""
    with path.open("rb") as file:
        start = file.read(4)
    with next((opener for magic, opener in OPENERS.items() if start.startswith(magic)), open)(path, "rb") as file:
        head = file.read(2**16)
        encoding = "utf-16" if head.startswith(UTF_16_MARKS) else "utf-8-sig"
        text = head.decode(encoding, "replace")
        if "\0" in text:
            raise ValueError("it is not text; save the table as CSV or Parquet")
        lines = [line for line in QUOTED.sub("text", text).splitlines() if line.strip()][:2]  # texts have commas, too
        named = EXCEL.match(text)
        separator = named[1] if named else max(SEPARATORS, key=lambda s: min((x.count(s) for x in lines), default=0))
        file.seek(0)
        stream = io.TextIOWrapper(file, encoding, newline="")
        if named:
            stream.readline()
        csv.field_size_limit(MAX_CELL)
        rows = filter(None, csv.reader(stream, delimiter=separator, strict=True))  # without blank lines
        names = [name.strip() for name in next(rows, [])]
        names = [name if name or "" not in names[:i] else f"Unnamed: {i}" for i, name in enumerate(names)]
        if not names:
            raise ValueError("it has no rows")
        if repeated := next((name for i, name in enumerate(names) if name in names[:i]), None):
            raise ValueError(f"columns must have different names, got {repeated!r} more than once; rename them")
        parts = [pl.DataFrame(schema=dict.fromkeys(names, pl.String))]
        while batch := list(itertools.islice(rows, BATCH_ROWS)):
            if row := next((row for row in batch if len(row) != len(names)), None):
                shown = separator.join(row)
                raise ValueError(f"the header has {len(names)} columns, but a row has {len(row)}: {shown}")
            parts.append(pl.DataFrame(dict(zip(names, zip(*batch, strict=True), strict=True)), parts[0].schema))
    return pl.concat(parts, rechunk=True), separator


def parse(subject: str, texts: pl.Series, is_name: bool, can_have_commas: bool) -> pl.Series:
    """Texts without spaces around them, as numbers unless they are names.

    Raises `DataError` about the `subject` if texts differ in these spaces only.
    """
    column = texts.str.strip_chars().replace(list(MISSING), None)
    column = _with_points(column) if can_have_commas else column
    column = column if is_name else _numbers(column)
    if column.dtype == pl.String:
        values = [text for text in texts.unique(maintain_order=True) if text and text.strip() not in MISSING]
        if twins := find_twins(values, str.strip):
            raise DataError(f"{subject} has {twins[0]!r} and {twins[1]!r}, which differ in spaces; remove these")
    return column


def _with_points(texts: pl.Series) -> pl.Series:
    """Texts such as 0,5 with points; the same texts if others are among them."""
    values = texts.unique().drop_nulls().to_list()
    is_decimal = any("," in value for value in values) and all(map(COMMA.fullmatch, values))
    return texts.str.replace(",", ".") if is_decimal and not all(map(GROUPED.fullmatch, values)) else texts


def _numbers(texts: pl.Series) -> pl.Series:
    """Texts as numbers, truth values or times; the same texts if others are among them.

    Also the same texts if two of them would be one number and may be names: 007 and 7, or integers that float64 rounds.
    """
    for kind in (pl.Int64, pl.UInt64, pl.Float64):
        numbers = texts.cast(kind, strict=False)
        if numbers.null_count() == texts.null_count():
            may_be_names = (numbers.abs() >= MAX_EXACT).any() or texts.str.contains(PADDED).any()
            return texts if may_be_names and numbers.n_unique() < texts.n_unique() else numbers
    words = texts.str.to_lowercase()
    if words.is_in(["true", "false", "1", "0"]).all():
        return words.is_in(["true", "1"])
    for time, pattern in TIMES.items():
        if texts.str.contains(pattern).all():  # what time has no part: the column is refused or left out
            return pl.Series(texts.name, [0] * len(texts)).cast(time)
    return texts


def numbers_if_canonical(path: Path, column: pl.Series, is_label: bool) -> pl.Series:
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
        if twins := find_twins(filter(float, texts), float):  # 0 may be 0.0 or -0
            shown = " and ".join(twins)
            raise DataError(f"{path}: labels {shown} are one number; write them alike, or as other names")
    return column.cast(pl.Float64)
