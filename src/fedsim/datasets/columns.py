"""Columns of a table as inputs, labels and clients.

Numbers and truth values are features. A text column with few values becomes one feature for each of them (one-hot).
Everything else is refused, so that no column is left out unless the user says so.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedsim.config.registry import did_you_mean, nearest
from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

MAX_CATEGORIES = 20  # of a text column
MAX_SHOWN = 20  # columns in a message
MAX_CLASS_SHARE = 0.5  # classes per row; labels with more are no classes


def encode(
    name: str, table: "pa.Table", label: str, client: str = "", drop: Sequence[str] = (), standardize: bool = True
) -> RawDataset:
    """The rows of `table` as examples that are not split: x [M, F] float32, one feature or more for each column.

    Texts, truth values and whole numbers in the column `label` are classes, numbered in sorted order; other numbers are
    to be predicted. The column `client`, if any, names the client of each row; the columns `drop` are left out. With
    `standardize`, columns of numbers have mean 0 and standard deviation 1 over all rows. Raises `DataError`, with
    the column, if one is missing or cannot be used.
    """
    if not table.num_rows:
        raise DataError(f"{name}: must have rows, got none")
    y, classes, client_ids, client_names = targets(name, table, label, client)
    drop = (drop,) if isinstance(drop, str) else drop
    for column in drop:
        require_column(name, table, "drop", column)
    if problems := unusable_columns(table, {label, client, *drop}):
        column, problem = next(iter(problems.items()))
        raise DataError(f"{name}: column {column!r} {problem}; change it, or add it to drop")
    features = [column for column in table.column_names if column not in {label, client, *drop}]
    if repeated := [column for column, number in Counter(features).items() if number > 1]:
        raise DataError(f"{name}: columns must have different names, got {repeated[0]!r} more than once; rename them")
    if not features:
        raise DataError(f"{name}: must have a column besides the label and the client, got {table.column_names}")
    x = np.concatenate([_features(table.column(column), standardize) for column in features], axis=1)
    num_classes = 0 if classes is None else len(classes)
    return RawDataset(name, x, y, x[:0], y[:0], num_classes, "vector", client_ids, None, client_names, classes)


def targets(
    name: str, table: "pa.Table", label: str, client: str
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """Labels [M] and the names of their classes, client ids [M] and the names of the clients; None for what is not."""
    require_column(name, table, "label", label)
    y, classes = _labels(name, table.column(label), label)
    if not client:
        return y, classes, None, None
    require_column(name, table, "client", client)
    names, ids = clients(name, table.column(client), client)
    return y, classes, ids, names


def require_column(name: str, table: "pa.Table", key: str, column: str) -> None:
    """Raises `DataError` unless `table` has exactly one such column; `key` is what the user set."""
    number = table.column_names.count(column)
    if number != 1:
        shown = ", ".join(map(repr, table.column_names[:MAX_SHOWN]))
        remedy = did_you_mean(nearest(column, table.column_names)) or f"; the columns are {shown}"
        raise DataError(f"{name}: {key} must name one column, got {column!r}, which {number} columns have{remedy}")


def unusable_columns(table: "pa.Table", skip: set[str]) -> dict[str, str]:
    """What is wrong with each column that cannot be a feature, among those not in `skip`."""
    problems = {column: _problem(table.column(i)) for i, column in enumerate(table.column_names) if column not in skip}
    return {column: problem for column, problem in problems.items() if problem}


def _problem(column: "pa.ChunkedArray") -> str:
    import pyarrow.compute as pc

    column = _plain(column)
    if column.null_count:
        return f"has no value in {column.null_count} of {len(column)} rows"
    if is_text(column):
        number = pc.count_distinct(column).as_py()
        return f"is text with {number} different values, more than {MAX_CATEGORIES}" * (number > MAX_CATEGORIES)
    if not _is_number(column):
        return f"is of type {column.type}, neither numbers nor text"
    return "" if np.isfinite(_numbers(column).astype(np.float32)).all() else "has NaN or infinity"


def _features(column: "pa.ChunkedArray", standardize: bool) -> np.ndarray:
    """[M, F] float32: F is 1 for numbers, and the number of values of a text column."""
    import pyarrow.types as kinds

    column = _plain(column)
    if is_text(column):
        values, numbers = _enumerate(column)
        return (numbers[:, None] == np.arange(len(values))).astype(np.float32)
    x = _numbers(column)
    if standardize and not kinds.is_boolean(column.type):
        x = (x - x.mean()) / (x.std() or 1.0) if x.min() < x.max() else np.zeros_like(x)  # rounding is no deviation
    return x[:, None].astype(np.float32)


def _labels(name: str, column: "pa.ChunkedArray", label: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Labels [M], and the names of the classes, or None if they are numbers to be predicted."""
    column = _plain(column)
    _require_values(name, column, "label", label)
    if not (is_text(column) or _is_number(column)):
        raise DataError(f"{name}: label {label} must be text or numbers, got type {column.type}")
    if not is_text(column):
        numbers = _numbers(column)
        with np.errstate(invalid="ignore"):  # NaN and infinity are refused later
            is_whole = np.all(np.mod(numbers, 1) == 0)
        if not is_whole:
            return numbers.astype(np.float32), None
    values, y = _enumerate(column)
    if len(values) > MAX_CLASS_SHARE * len(y):
        raise DataError(
            f"{name}: label {label} must have classes that occur more than once, got {len(values)} values in {len(y)} "
            "rows"
        )
    return y, values.astype(str)


def clients(name: str, column: "pa.ChunkedArray", client: str) -> tuple[np.ndarray, np.ndarray]:
    """The names [C] of the clients, and the client [M] of each row."""
    column = _plain(column)
    _require_values(name, column, "client", client)
    if not (is_text(column) or _is_number(column)):
        raise DataError(f"{name}: client {client} must be text or numbers, got type {column.type}")
    if not is_text(column) and np.isnan(_numbers(column)).any():
        raise DataError(f"{name}: client {client} must name the client of each row, got NaN")
    values, numbers = _enumerate(column)
    return values.astype(str), numbers


def _require_values(name: str, column: "pa.ChunkedArray", key: str, which: str) -> None:
    if column.null_count:
        raise DataError(f"{name}: {key} {which} has no value in {column.null_count} of {len(column)} rows; fill them")


def _plain(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """The column with dictionaries as their values, decimal numbers as floats, and views of texts as texts."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kinds.is_string_view(column.type):
        column = column.cast(pa.large_string())
    return column.cast(pa.float64()) if kinds.is_decimal(column.type) else column


def is_text(column: "pa.ChunkedArray") -> bool:
    """Whether the column, or what its dictionary refers to, is text."""
    import pyarrow.types as kinds

    kind = column.type.value_type if kinds.is_dictionary(column.type) else column.type
    return kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)


def _is_number(column: "pa.ChunkedArray") -> bool:
    import pyarrow.types as kinds

    return kinds.is_integer(column.type) or kinds.is_floating(column.type) or kinds.is_boolean(column.type)


def _numbers(column: "pa.ChunkedArray") -> np.ndarray:
    return column.to_numpy().astype(np.float64)


def _enumerate(column: "pa.ChunkedArray") -> tuple[np.ndarray, np.ndarray]:
    """The distinct values, sorted, and the position [M] int32 among them of each."""
    encoded = column.combine_chunks().dictionary_encode()
    values = encoded.dictionary.to_numpy(zero_copy_only=False)
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order))
    return values[order], ranks[encoded.indices.to_numpy()]
