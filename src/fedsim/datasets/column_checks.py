"""Columns of a table as they are: their kinds, missing values, and what makes one questionable or unusable."""

import re
from collections.abc import Collection

import numpy as np
import polars as pl

from fedsim.datasets.client_ids import NUMBER
from fedsim.datasets.portions import is_whole

MAX_CATEGORIES = 20  # of a text column
MAX_EXACT = 2**53  # of whole numbers in float64
INDEX_PROBLEM = "is the index of a pandas frame, such as row numbers"
EMPTY_PROBLEM = "has no values"  # and no name, as where each line ends with a delimiter
LEFT_OUT = (INDEX_PROBLEM, EMPTY_PROBLEM)
INDEX = re.compile(r"|Unnamed: \d+(_level_\d+)?(\.\d+)*|__index_level_\d+__|__null_dask_index__")
MAX_SAFE = 2**22  # of whole numbers that differ as float32, also after they are standardized
FORMATTED = re.compile(  # numbers, maybe with separators, a unit, or in the notation of a programming language
    r"[(+\u2212-]?\s?[$€£¥]?\s?-?[\d.,'_\s]*\d[\d.,'_\s]*([DEde][+-]?\d+)?\s?[%$€£¥)]?|[+-]?0[Xx][\dA-Fa-f]+"
)


def unusable_columns(table: pl.DataFrame, skip: set[str], index: Collection[str] = ()) -> dict[str, str]:
    """What is wrong with each column that cannot be a feature, among those not in `skip`; `index` are of a frame."""
    problems = {}
    for column in table:
        if column.name not in skip and (INDEX.fullmatch(column.name) or column.name in index):
            problems[column.name] = EMPTY_PROBLEM if column.null_count() == len(column) else INDEX_PROBLEM
        elif column.name not in skip and (problem := _problem(column)):
            problems[column.name] = problem
    return problems


def _problem(column: pl.Series) -> str:
    if missing := num_missing(column):
        return f"has no value in {missing} of {len(column)} rows"
    if column.dtype == pl.String:
        number = column.n_unique()
        size = f"{number} different values, more than {MAX_CATEGORIES}"
        return f"is text with {size}, such as {example_of(column)!r}" * (number > MAX_CATEGORIES)
    if is_list(column):
        return _list_problem(column)
    if not is_number(column):
        return f"is of type {column.dtype.base_type()}, neither numbers nor text"
    return range_problem(numbers_of(column))


def _list_problem(column: pl.Series) -> str:
    lengths, numbers = column.cast(pl.List(pl.Float64)).list.len().unique().sort(), lists_of(column)
    if len(lengths) > 1 or lengths[0] == 0:
        return f"has lists of {lengths[0]} to {lengths[-1]} numbers; their lengths must be equal"
    if missing := num_missing(numbers):
        return f"has no value in {missing} of {len(numbers)} numbers of its lists"
    return range_problem(numbers.to_numpy())


def range_problem(numbers: np.ndarray) -> str:
    """What is wrong with numbers that are not finite as float32."""
    if (infinite := np.isinf(numbers)).any():
        return f"has infinity in {infinite.sum()} of {len(numbers)} rows"
    largest = numbers[np.argmax(np.abs(numbers))]
    return f"has {largest:g}, too large for float32" if abs(largest) > np.finfo(np.float32).max else ""


def is_formatted(text: str) -> bool:
    """Whether the text is a number as people write it, such as $1,000, but not as programs do."""
    return bool(FORMATTED.fullmatch(text) and not NUMBER.fullmatch(text))


def example_of(column: pl.Series) -> str:
    """A value of a text column, one that is no number if there is one."""
    values = column.unique(maintain_order=True).to_list()
    return str(next((value for value in values if not NUMBER.fullmatch(value)), values[0]))


def remark(column: pl.Series, x: np.ndarray) -> str:
    """What is questionable about a column as features `x` [M, F]; "" if nothing is."""
    if column.dtype == pl.String:
        values = column.unique().to_list()
        if not any(map(FORMATTED.fullmatch, values)) or all(value.isdecimal() for value in values):
            return ""
        return f"is text, since it has {example_of(column)!r}: one feature for each of its {len(values)} values"
    if is_list(column) or column.dtype == pl.Boolean or not is_whole(numbers := numbers_of(column)):
        return ""
    largest, steps = np.abs(numbers).max(), np.diff(numbers)
    is_permutation = np.ptp(numbers) == len(steps) and column.n_unique() == len(numbers)
    if len(steps) > 1 and (is_permutation or np.all(steps > 0) or np.all(steps < 0)):
        return "has a different whole number in each row, in order; add it to drop if these number the rows"
    if largest > MAX_SAFE and column.n_unique() > len(np.unique(x)):
        return (
            f"has whole numbers that float32 cannot tell apart, up to {largest:.0f}; add it to drop if they are names"
        )
    return ""


def num_missing(column: pl.Series, is_name: bool = False) -> int:
    """The number of rows that are null or NaN; for names, also of blank texts."""
    missing = column.null_count()
    if column.dtype.is_float():
        missing += int(column.is_nan().sum())
    if is_name and column.dtype == pl.String:
        missing += int((column.str.strip_chars() == "").sum())
    return missing


def is_number(column: pl.Series) -> bool:
    """Whether the column has numbers or truth values."""
    return column.dtype.is_numeric() or column.dtype == pl.Boolean


def is_list(column: pl.Series) -> bool:
    """Whether the column has lists of numbers, such as embeddings."""
    inner = getattr(column.dtype, "inner", None)
    return isinstance(inner, pl.DataType) and inner.is_numeric()


def lists_of(column: pl.Series) -> pl.Series:
    """The numbers of all lists, one after another, as float64."""
    return column.cast(pl.List(pl.Float64)).explode()


def numbers_of(column: pl.Series) -> np.ndarray:
    """[M] float64, also of decimals and large integers, which float64 rounds."""
    return column.cast(pl.Float64).to_numpy()
