"""Columns of a table as inputs, labels and clients.

Numbers and truth values are features. A text column with few values becomes one feature for each of them (one-hot).
The index of a pandas frame is left out with a note. Everything else is refused, so that no column is left out unless
the user says so.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedsim.config.registry import did_you_mean, nearest
from fedsim.datasets.column_checks import (
    LEFT_OUT,
    MAX_EXACT,
    example_of,
    is_formatted,
    is_number,
    is_text,
    name_remarks,
    num_missing,
    numbers_of,
    plain,
    range_problem,
    remark,
    unusable_columns,
)
from fedsim.datasets.portions import is_whole
from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

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
    notes, unused = [], {label, client, *drop}
    for column, problem in unusable_columns(table, unused).items():
        if problem not in LEFT_OUT:
            raise DataError(f"{name}: column {column!r} {problem}; change it, or add it to drop")
        notes.append(f"{name}: column {column!r} is left out, since it {problem}")
        unused.add(column)
    features = [column for column in table.column_names if column not in unused]
    if repeated := [column for column, number in Counter(features).items() if number > 1]:
        raise DataError(f"{name}: columns must have different names, got {repeated[0]!r} more than once; rename them")
    if not features:
        raise DataError(f"{name}: must have a column besides the label and the client, got {table.column_names}")
    if label == client:
        notes.append(f"{name}: column {label!r} is the label and the client, so each client has one class")
    if odd := next(filter(is_formatted, [] if classes is None else classes.tolist()), ""):
        notes.append(f"{name}: column {label!r} is text, since it has {odd!r}: one class for each of its texts")
    for column, names in ((label, classes), (client, client_names)):
        if names is not None:
            notes += [f"{name}: column {column!r} has {found}" for found in name_remarks(names.tolist(), column)]
    parts = []
    for column in features:
        values = plain(table.column(column))
        parts.append(_features(values, standardize))
        if questionable := remark(values, parts[-1]):
            notes.append(f"{name}: column {column!r} {questionable}")
    x = np.concatenate(parts, axis=1)
    num_classes = 0 if classes is None else len(classes)
    return RawDataset(
        name, x, y, x[:0], y[:0], num_classes, "vector", client_ids, None, client_names, classes, tuple(notes)
    )


def targets(
    name: str, table: "pa.Table", label: str, client: str
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """Labels [M] and the names of their classes, client ids [M] and the names of the clients; None for what is not."""
    y, classes = _labels(name, require_column(name, table, "label", label), label)
    names, ids = clients(name, table, client) if client else (None, None)
    return y, classes, ids, names


def require_column(name: str, table: "pa.Table", key: str, column: str) -> "pa.ChunkedArray":
    """The plain column. Raises `DataError` unless `table` has exactly one of that name; `key` is what the user set."""
    number = table.column_names.count(column)
    if number != 1:
        shown = ", ".join(map(repr, table.column_names[:MAX_SHOWN]))
        remedy = did_you_mean(nearest(column, table.column_names)) or f"; the columns are {shown}"
        remedy = "; rename them" if number else remedy
        raise DataError(f"{name}: {key} must name one column, got {column!r:.100}, which {number} columns have{remedy}")
    return plain(table.column(column))


def _features(column: "pa.ChunkedArray", standardize: bool) -> np.ndarray:
    """[M, F] float32: F is 1 for numbers, and the number of values of a text column."""
    import pyarrow.types as kinds

    if is_text(column):
        values, numbers = _enumerate(column)
        return (numbers[:, None] == np.arange(len(values))).astype(np.float32)
    x = numbers_of(column)
    if standardize and not kinds.is_boolean(column.type):
        if not kinds.is_floating(column.type) and np.abs(x).max() > MAX_EXACT:  # exact differences
            integers = column.to_pylist()
            x = np.asarray([number - integers[0] for number in integers], np.float64)
        x = (x - x.mean()) / (x.std() or 1.0) if x.min() < x.max() else np.zeros_like(x)  # rounding is no deviation
    return x[:, None].astype(np.float32)


def _labels(name: str, column: "pa.ChunkedArray", label: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Labels [M], and the names of the classes, or None if they are numbers to be predicted."""
    _require_names(name, column, "label", label)
    if not is_text(column):
        numbers = numbers_of(column)
        if problem := range_problem(numbers):
            raise DataError(f"{name}: label {label} {problem}; change or remove them")
        if not is_whole(numbers):
            return numbers.astype(np.float32), None
    values, y = _enumerate(column)
    if len(values) > MAX_CLASS_SHARE * len(y):
        remedy = f", such as {example_of(column)!r}" if is_text(column) else "; standardize numbers to predict"
        raise DataError(
            f"{name}: label {label} must have classes that occur more than once, got {len(values)} values in {len(y)} "
            f"rows{remedy}"
        )
    return y, values.astype(str)


def clients(name: str, table: "pa.Table", client: str) -> tuple[np.ndarray, np.ndarray]:
    """The names [C] of the clients in the column `client`, and the client [M] of each row."""
    column = require_column(name, table, "client", client)
    _require_names(name, column, "client", client)
    values, numbers = _enumerate(column)
    return values.astype(str), numbers


def _require_names(name: str, column: "pa.ChunkedArray", key: str, which: str) -> None:
    """Raises `DataError` unless every row has a text or a number."""
    if missing := num_missing(column, is_name=True):
        raise DataError(
            f"{name}: {key} {which} has no value in {missing} of {len(column)} rows; fill them (in a CSV file, NA and "
            "None are no names)"
        )
    if not (is_text(column) or is_number(column)):
        raise DataError(f"{name}: {key} {which} must be text or numbers, got type {column.type}; convert it to text")


def _enumerate(column: "pa.ChunkedArray") -> tuple[np.ndarray, np.ndarray]:
    """The distinct values, sorted, and the position [M] int32 among them of each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.equal(column, 0), pa.scalar(0, column.type), column)  # -0.0 is 0.0
    encoded = column.combine_chunks().dictionary_encode()
    values = encoded.dictionary.to_numpy(zero_copy_only=False)
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order))
    return values[order], ranks[encoded.indices.to_numpy()]
