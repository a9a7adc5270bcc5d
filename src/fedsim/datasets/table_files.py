"""Tables in files: CSV and Parquet, a file or a folder of parts as Spark and Dask write them.

In a CSV file, labels and clients are texts unless all are written as a program writes numbers, and the cells that
pandas takes for missing are missing. Everything else is as Arrow reads it.
"""

import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from fedsim.datasets.column_checks import MAX_EXACT, MISSING, NUMBER
from fedsim.errors import DataError, reason

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".csv", ".tsv", ".parquet")
COMPRESSED = (".gz", ".bz2", ".zst")  # of .csv and .tsv files
MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
ENCODINGS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}  # by byte-order mark; Arrow skips that of UTF-8
SEPARATORS = ",;\t|"
QUOTED = re.compile(r'"[^"]*"')
EXCEL = re.compile(r"\ufeff?sep=(.)\r?\n")  # the first line of some files for Excel
COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")  # instead of a decimal point
GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})?")  # may be thousands
INTEGER = re.compile(r"0|-?[1-9]\d{0,17}")
PADDED, HEXADECIMAL = r"^-?0[\dxX]", r"^-?0[xX]"
WRONG_LENGTH = re.compile(r"CSV parse error: (?:Row #\d+: )?Expected (\d+) columns, got (\d+): ?(.*)")
SPLIT = re.compile(r"(?<![a-z])(train|test|val|valid|validation|dev)(?![a-z])", re.IGNORECASE)
LOGS = ("_delta_log", ".hoodie")  # say which files of a folder are current
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def is_table(path: Path) -> bool:
    """Whether `path` has the name of a table, or is a folder of its parts, neither of arrays nor in LEAF's format."""
    is_other = any(path.glob("*.npy")) or any(path.glob("train/*.json*"))
    return (bool(_parts(path)) and not is_other) if path.is_dir() else _suffix(path) in SUFFIXES


def read(path: Path, label: str, client: str = "") -> "pa.Table":
    """The table in the file or folder at `path`. Raises `DataError` if it cannot be read."""
    import pyarrow as pa
    from pyarrow import parquet

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
    tables, texts = [], set()
    for part in parts:
        try:
            is_csv = _suffix(part) != ".parquet"
            rows = _read_csv(part, label, client) if is_csv else parquet.ParquetFile(part).read()
            folders = dict(name.split("=", 1) for name in part.relative_to(path).parts[:-1] if "=" in name)
            texts |= {*folders, *((label, client) if is_csv else ())}
            for name, value in folders.items():
                cells = [None if value == NO_PARTITION else unquote(value)] * rows.num_rows
                rows = rows.append_column(name, pa.array(cells, pa.string()))
            tables.append(rows)
            _ = rows.column_names  # raises if they are not UTF-8
            if len(tables) > 1:
                rows = pa.concat_tables(tables, promote_options="permissive")
        except (pa.ArrowException, OSError, ValueError) as error:
            problem = WRONG_LENGTH.sub(r"the header has \1 columns, but a row has \2: \3", reason(error))
            if re.search("utf-?8", problem, re.IGNORECASE):
                problem = f"must be UTF-8 text; convert it: iconv -f LATIN1 -t UTF-8 {part.name} > new{_suffix(part)}"
            problem = "it has no rows" if "Empty CSV file" in problem else problem
            is_merge = problem.startswith("Unable to merge")
            what = "must have the types of the other files" if is_merge else f"not a {_suffix(part)} table"
            raise DataError(f"{part}: {what}: {problem}") from None
    for i, name in enumerate(rows.column_names):
        if name in texts:
            rows = rows.set_column(i, name, _numbers_if_canonical(path, rows.column(i), is_label=name == label))
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


def _read_csv(path: Path, label: str, client: str) -> "pa.Table":
    """The rows of a CSV file, with the labels and clients as texts."""
    import pyarrow as pa
    from pyarrow import csv

    with path.open("rb") as file:
        start = file.read(4)
    compression = next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)
    open_file = lambda: pa.input_stream(path, compression=compression)
    with open_file() as file:
        head = file.read(2**16)
    encoding = ENCODINGS.get(head[:2], "utf8")
    text = head.decode(encoding, "replace")
    if "\0" in text:
        raise ValueError("it is not text; save the table as CSV or Parquet")
    lines = [line for line in QUOTED.sub("text", text).splitlines() if line.strip()][:2]  # texts have commas and lines
    named = EXCEL.match(text)
    reading = csv.ReadOptions(encoding=encoding, skip_rows=int(named is not None))
    delimiter = named[1] if named else max(SEPARATORS, key=lambda s: min((line.count(s) for line in lines), default=0))
    parsing = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)

    def load(how: Callable[..., Any], texts: Collection[str] = ()) -> Any:
        types = dict.fromkeys(texts, pa.string())
        converting = csv.ConvertOptions(null_values=MISSING, strings_can_be_null=True, column_types=types)
        with open_file() as file:
            return how(file, reading, parsing, converting)

    first = load(csv.open_csv).schema  # as the first block suggests
    targets = {label, client}
    texts = {field.name for field in first if field.name.strip() in targets or pa.types.is_integer(field.type)}
    rows = load(csv.read_csv, texts)
    if doubtful := {name for name, column in zip(first.names, rows.columns, strict=True) if _may_be_names(column)}:
        rows = load(csv.read_csv, texts | doubtful)
    for i, field in enumerate(rows.schema):
        name, column = field.name.strip(), rows.column(i)
        if pa.types.is_binary(field.type):
            raise ValueError(f"column {name!r} is not UTF-8")
        if pa.types.is_string(field.type):
            numbers = None if name in targets else _numbers(column)
            column = _trim(f"{path}: column {name!r}", column) if numbers is None else numbers
            if delimiter != "," and name != client and numbers is None:
                column = _with_points(column, is_label=name == label)
        rows = rows.set_column(i, name, column)
    return rows


def _may_be_names(column: "pa.ChunkedArray") -> bool:
    """Whether two texts in a column of numbers may be one number: 007 and 7, or integers that float64 rounds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.greater_equal(pc.abs(column), float(MAX_EXACT))).as_py())
    return bool(pa.types.is_integer(column.type))


def _with_points(column: "pa.ChunkedArray", is_label: bool) -> "pa.ChunkedArray":
    """Texts such as 0,5 as numbers, labels as texts with points; the same texts if others are among them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = column.unique().drop_null().to_pylist()
    is_decimal = any("," in value for value in values) and all(map(COMMA.fullmatch, values))
    if is_decimal and not all(map(GROUPED.fullmatch, values)):
        column = pc.replace_substring(column, ",", ".")
        return column if is_label else column.cast(pa.float64())
    return column


def _numbers(texts: "pa.ChunkedArray") -> "pa.ChunkedArray | None":
    """Texts as decimal numbers; None if they are none, or two of them would be one number and may be names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(texts)
    for kind in (pa.int64(), pa.uint64(), pa.float64()):
        try:
            numbers = texts.cast(kind)
        except pa.ArrowInvalid:
            continue
        is_float = kind == pa.float64()
        if not (_may_be_names(numbers) if is_float else pc.any(pc.match_substring_regex(texts, PADDED)).as_py()):
            return numbers
        is_hexadecimal = not is_float and pc.any(pc.match_substring_regex(texts, HEXADECIMAL)).as_py()
        merges = pc.count_distinct(numbers).as_py() < pc.count_distinct(texts).as_py()
        return None if is_hexadecimal or merges else numbers
    return None


def _trim(subject: str, column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Texts without spaces around them. Raises `DataError` about the `subject` if some differ in these only."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [text for text in column.unique().to_pylist() if text and text.strip() not in MISSING]
    if twins := _twins(texts, str.strip):
        raise DataError(f"{subject} has {twins[0]!r} and {twins[1]!r}, which differ in spaces; remove these")
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.is_in(trimmed, pa.array(MISSING)), pa.scalar(None, pa.string()), trimmed)


def _twins(texts: Iterable[str], key: Callable[[str], Any]) -> tuple[str, str] | None:
    """Two different texts with the same `key`, if there are any."""
    first: dict[Any, str] = {}
    return next(((other, text) for text in texts if (other := first.setdefault(key(text), text)) != text), None)


def _numbers_if_canonical(path: Path, column: "pa.ChunkedArray", is_label: bool) -> "pa.ChunkedArray":
    """Texts as the numbers that they are; the same texts if that could merge two, as 007 and 7, 1e5 and 100000.

    Labels that are not all whole are numbers to be predicted. Raises `DataError` if two of these are one number.
    """
    import pyarrow as pa

    texts = [text for text in column.unique().to_pylist() if text is not None]
    if all(map(INTEGER.fullmatch, texts)):
        return column.cast(pa.int64())
    if not all(map(NUMBER.fullmatch, texts)):
        return column
    if not all(repr(float(text)) == text for text in texts):
        if not is_label or all(float(text).is_integer() for text in texts):
            return column
        if twins := _twins(filter(float, texts), float):  # 0 may be 0.0 or -0
            shown = " and ".join(twins)
            raise DataError(f"{path}: labels {shown} are one number; write them alike, or as other names")
    return column.cast(pa.float64())
