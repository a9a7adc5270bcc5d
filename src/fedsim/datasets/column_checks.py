"""Columns of a table as they are: their kinds, missing values, and what makes one questionable or unusable."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.datasets.portions import is_whole

if TYPE_CHECKING:
    import pyarrow as pa

MAX_CATEGORIES = 20  # of a text column
MAX_EXACT = 2**53  # of whole numbers in float64
MISSING = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
INDEX_PROBLEM = "is the index of a pandas frame, such as row numbers"
EMPTY_PROBLEM = "has no values"  # and no name, as where each line ends with a delimiter
LEFT_OUT = (INDEX_PROBLEM, EMPTY_PROBLEM)
INDEX = re.compile(r"|Unnamed: \d+(_level_\d+)?(\.\d+)*|__index_level_\d+__|__null_dask_index__")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
MAX_SAFE = 2**22  # of whole numbers that differ as float32, also after they are standardized
FORMATTED = re.compile(  # numbers, maybe with separators, a unit, or in the notation of a programming language
    r"[(+\u2212-]?\s?[$€£¥]?\s?-?[\d.,'_\s]*\d[\d.,'_\s]*([DEde][+-]?\d+)?\s?[%$€£¥)]?|[+-]?0[Xx][\dA-Fa-f]+"
)


def unusable_columns(table: "pa.Table", skip: set[str]) -> dict[str, str]:
    """What is wrong with each column that cannot be a feature, among those not in `skip`."""
    try:
        index = list(table.schema.pandas_metadata["index_columns"])  # names, or ranges, which are no columns
    except (KeyError, TypeError, ValueError):  # written by other programs
        index = []
    problems = {}
    for i, name in enumerate(table.column_names):
        column = table.column(i)
        if name not in skip and (INDEX.fullmatch(name) or name in index):
            problems[name] = EMPTY_PROBLEM if column.null_count == len(column) else INDEX_PROBLEM
        elif name not in skip and (problem := _problem(plain(column))):
            problems[name] = problem
    return problems


def name_remarks(names: Iterable[Any], also_missing: str = "") -> Iterator[str]:
    """What is questionable about names of classes or clients: texts that mean missing, and the first that look alike.

    `also_missing` is another text that is no name, such as that of the column.
    """
    seen: dict[Any, str] = {}
    alike = []
    for text in (name for name in names if isinstance(name, str)):
        if text in ("NaT", also_missing, *MISSING):
            yield f"the text {text!r}, which is taken for a name like others"
        folded = " ".join(unicodedata.normalize("NFKC", text.casefold() if len(text) > 1 else text).split())
        key = Decimal(folded) if text.isascii() and NUMBER.fullmatch(folded) else folded
        if (other := seen.setdefault(key, text)) != text:
            alike.append((other, text))
    if alike:
        yield f"{alike[0][0]!r} and {alike[0][1]!r}, which are taken for different names"


def _problem(column: "pa.ChunkedArray") -> str:
    import pyarrow.compute as pc

    if missing := num_missing(column):
        return f"has no value in {missing} of {len(column)} rows"
    if is_text(column):
        number = pc.count_distinct(column).as_py()
        size = f"{number} different values, more than {MAX_CATEGORIES}"
        return f"is text with {size}, such as {example_of(column)!r}" * (number > MAX_CATEGORIES)
    if not is_number(column):
        return f"is of type {column.type}, neither numbers nor text"
    return range_problem(numbers_of(column))


def range_problem(numbers: np.ndarray) -> str:
    """What is wrong with numbers that are not finite as float32."""
    if (infinite := np.isinf(numbers)).any():
        return f"has infinity in {infinite.sum()} of {len(numbers)} rows"
    largest = numbers[np.argmax(np.abs(numbers))]
    return f"has {largest:g}, too large for float32" if abs(largest) > np.finfo(np.float32).max else ""


def is_formatted(text: str) -> bool:
    """Whether the text is a number as people write it, such as $1,000, but not as programs do."""
    return bool(FORMATTED.fullmatch(text) and not NUMBER.fullmatch(text))


def example_of(column: "pa.ChunkedArray") -> str:
    """A value of a text column, one that is no number if there is one."""
    values = column.unique().to_pylist()
    return str(next((value for value in values if not NUMBER.fullmatch(value)), values[0]))


def remark(column: "pa.ChunkedArray", x: np.ndarray) -> str:
    """What is questionable about a plain column as features `x` [M, F]; "" if nothing is."""
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    if is_text(column):
        values = column.unique().to_pylist()
        if not any(map(FORMATTED.fullmatch, values)) or all(value.isdecimal() for value in values):
            return ""
        return f"is text, since it has {example_of(column)!r}: one feature for each of its {len(values)} values"
    if kinds.is_boolean(column.type) or not is_whole(numbers := numbers_of(column)):
        return ""
    largest, steps = np.abs(numbers).max(), np.diff(numbers)
    is_permutation = np.ptp(numbers) == len(steps) and pc.count_distinct(column).as_py() == len(numbers)
    if len(steps) > 1 and (is_permutation or np.all(steps > 0) or np.all(steps < 0)):
        return "has a different whole number in each row, in order; add it to drop if these number the rows"
    if largest > MAX_SAFE and pc.count_distinct(column).as_py() > len(np.unique(x)):
        return (
            f"has whole numbers that float32 cannot tell apart, up to {largest:.0f}; add it to drop if they are names"
        )
    return ""


def num_missing(column: "pa.ChunkedArray", is_name: bool = False) -> int:
    """The number of rows that are null or NaN; for names, also of blank texts."""
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    missing = column.null_count
    if kinds.is_floating(column.type):
        missing += pc.sum(pc.is_nan(column)).as_py() or 0
    if is_name and is_text(column):
        missing += pc.sum(pc.equal(pc.utf8_trim_whitespace(column), "")).as_py() or 0
    return int(missing)


def plain(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """The column with dictionaries as their values, and views of texts and half floats as common types."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_dictionary(column.type):
        kind = pa.large_string() if is_text(column) else column.type.value_type
        column = pa.chunked_array([chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks], kind)
    if kinds.is_float16(column.type):  # for which Arrow has few functions
        return column.cast(pa.float32())
    return column.cast(pa.large_string()) if kinds.is_string_view(column.type) else column


def is_text(column: "pa.ChunkedArray") -> bool:
    """Whether the column, or what its dictionary refers to, is text."""
    import pyarrow.types as kinds

    kind = column.type.value_type if kinds.is_dictionary(column.type) else column.type
    return kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)


def is_number(column: "pa.ChunkedArray") -> bool:
    """Whether the column has numbers or truth values."""
    import pyarrow.types as kinds

    is_kind = kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal
    return any(check(column.type) for check in is_kind)


def numbers_of(column: "pa.ChunkedArray") -> np.ndarray:
    """[M] float64, also of decimals, which float64 rounds."""
    return column.to_numpy().astype(np.float64, copy=False)
