"""Columns of a table as inputs, labels and clients.

Numbers and truth values are features, and so are lists of numbers of one length, such as embeddings. A text column with
few values becomes one feature for each of them (one-hot). The index of a pandas frame is left out with a note.
Everything else is refused, so that no column is left out unless the user says so.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from fedsim.config.registry import did_you_mean, nearest
from fedsim.datasets import windows
from fedsim.datasets.client_ids import name_remarks
from fedsim.datasets.column_checks import (
    LEFT_OUT,
    MAX_EXACT,
    example_of,
    is_formatted,
    is_list,
    is_number,
    lists_of,
    num_missing,
    numbers_of,
    range_problem,
    remark,
    unusable_columns,
)
from fedsim.datasets.portions import is_whole
from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError

MAX_SHOWN = 20  # columns in a message
MAX_CLASS_SHARE = 0.5  # classes per row; labels with more are no classes


def encode(
    name: str,
    table: pl.DataFrame,
    label: str,
    client: str = "",
    drop: Sequence[str] = (),
    standardize: bool = True,
    index: Collection[str] = (),
) -> RawDataset:
    """The rows of `table` as examples that are not split: x [M, F] float32, one feature or more for each column.

    Texts, truth values and whole numbers in the column `label` are classes, numbered in sorted order; other numbers are
    to be predicted. The column `client`, if any, names the client of each row; the columns `drop` are left out, and so
    are, with a note, those that were the `index` of a frame. With `standardize`, columns of numbers have mean 0 and
    standard deviation 1 over all rows; lists stay as they are. Raises `DataError`, with the column, if one is missing
    or cannot be used.
    """
    raw = targets(name, table, label, client)
    for column in drop:
        require_column(name, table, "drop", column)
    notes, unused = list(raw.notes), named(label, client, *drop)
    for column, problem in unusable_columns(table, unused, index).items():
        if problem not in LEFT_OUT:
            raise DataError(f"{name}: column {column!r} {problem}; change it, or add it to drop")
        notes.append(f"{name}: column {column!r} is left out, since it {problem}")
        unused.add(column)
    features = [column for column in table.columns if column not in unused]
    if not features:
        raise DataError(f"{name}: must have a column besides the label and the client, got {table.columns}")
    parts = []
    for column in features:
        parts.append(_features(table[column], standardize))
        if questionable := remark(table[column], parts[-1]):
            notes.append(f"{name}: column {column!r} {questionable}")
    x = np.concatenate(parts, axis=1)
    return replace(raw, x=x, x_test=x[:0], notes=tuple(notes))


def encode_texts(
    name: str, table: pl.DataFrame, text: str, label: str, client: str, window: int, tokenizer: str
) -> RawDataset:
    """The rows of `table` as texts that are not split, see `windows.first_tokens`; all else as in `encode`."""
    raw = targets(name, table, label, client)
    x, notes = windows.first_tokens(name, texts_of(name, table, text), window, tokenizer)
    return replace(raw, x=x, x_test=x[:0], inputs="text", notes=raw.notes + notes, are_windows=False)


def texts_of(name: str, table: pl.DataFrame, text: str) -> list[str]:
    """The texts in the column. Raises `DataError` if a row has none."""
    texts: list[str] = require_column(name, table, "text", text).to_list()
    if wrong := [i for i, value in enumerate(texts) if not isinstance(value, str)]:
        got = f"{texts[wrong[0]]!r:.100} in row {wrong[0]}"
        raise DataError(f"{name}: text {text} must have a text in every row, got {got}")
    return texts


def targets(name: str, table: pl.DataFrame, label: str, client: str) -> RawDataset:
    """The labels and clients of the rows, which are not split, without inputs, and remarks on their names."""
    if table.is_empty():
        raise DataError(f"{name}: must have rows, got none")
    y, classes = _labels(name, require_column(name, table, "label", label), label)
    names, ids = clients(name, table, client) if client else (None, None)
    x, notes = np.zeros((len(y), 0), np.float32), []
    if label == client:
        notes.append(f"{name}: column {label!r} is the label and the client, so each client has one class")
    if odd := next(filter(is_formatted, [] if classes is None else classes.tolist()), ""):
        notes.append(f"{name}: column {label!r} is text, since it has {odd!r}: one class for each of its texts")
    for column, of_column in ((label, classes), (client, names)):
        notes += [f"{name}: column {column!r} has {found}" for found in name_remarks(of_column, column)]
    num_classes = 0 if classes is None else len(classes)
    return RawDataset(name, x, y, x[:0], y[:0], num_classes, "vector", ids, None, names, classes, tuple(notes))


def named(label: str, client: str, *others: str) -> set[str]:
    """The columns that are named; the client may not be, which is no column without a name."""
    return {label, *others} | ({client} if client else set())


def require_column(name: str, table: pl.DataFrame, key: str, column: str) -> pl.Series:
    """The column. Raises `DataError` if there is none; `key` is what the user set."""
    if column not in table.columns:
        shown = ", ".join(map(repr, table.columns[:MAX_SHOWN]))
        remedy = did_you_mean(nearest(column, table.columns)) or f"; the columns are {shown}"
        raise DataError(f"{name}: {key} must name one column, got {column!r:.100}, which 0 columns have{remedy}")
    return table[column]


def _features(column: pl.Series, standardize: bool) -> np.ndarray:
    """[M, F] float32: F is 1 for numbers, the number of values of a text column, or the length of lists."""
    if column.dtype == pl.String:
        values, numbers = _enumerate(column)
        return np.eye(len(values), dtype=np.float32)[numbers]
    if is_list(column):
        return lists_of(column).to_numpy().reshape(len(column), -1).astype(np.float32)
    x = numbers_of(column)
    if standardize and column.dtype != pl.Boolean:
        if not column.dtype.is_float() and np.abs(x).max() >= MAX_EXACT:  # exact differences
            integers = column.to_list()
            x = np.asarray([number - integers[0] for number in integers], np.float64)
        x = (x - x.mean()) / (x.std() or 1.0) if x.min() < x.max() else np.zeros_like(x)  # rounding is no deviation
    return x[:, None].astype(np.float32)


def _labels(name: str, column: pl.Series, label: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Labels [M], and the names of the classes, or None if they are numbers to be predicted."""
    _require_names(name, column, "label", label)
    is_text = column.dtype == pl.String
    if not is_text:
        numbers = numbers_of(column)
        if problem := range_problem(numbers):
            raise DataError(f"{name}: label {label} {problem}; change or remove them")
        if not is_whole(numbers):
            return numbers.astype(np.float32), None
    values, y = _enumerate(column)
    if len(values) > MAX_CLASS_SHARE * len(y):
        remedy = f", such as {example_of(column)!r}" if is_text else "; standardize numbers to predict"
        raise DataError(
            f"{name}: label {label} must have classes that occur more than once, got {len(values)} values in {len(y)} "
            f"rows{remedy}"
        )
    return y, values


def clients(name: str, table: pl.DataFrame, client: str) -> tuple[np.ndarray, np.ndarray]:
    """The names [C] of the clients in the column `client`, and the client [M] of each row."""
    column = require_column(name, table, "client", client)
    _require_names(name, column, "client", client)
    return _enumerate(column)


def _require_names(name: str, column: pl.Series, key: str, which: str) -> None:
    """Raises `DataError` unless every row has a text or a number."""
    if missing := num_missing(column, is_name=True):
        raise DataError(
            f"{name}: {key} {which} has no value in {missing} of {len(column)} rows; fill them (in a CSV file, NA and "
            "None are no names)"
        )
    if not (column.dtype == pl.String or is_number(column)):
        raise DataError(
            f"{name}: {key} {which} must be text or numbers, got type {column.dtype.base_type()}; convert it to text"
        )


def _enumerate(column: pl.Series) -> tuple[np.ndarray, np.ndarray]:
    """The names of the distinct values, sorted, and the position [M] int32 among them of each."""
    values = column.unique().sort()
    is_float = column.dtype.is_float()  # NumPy makes -0.0 + 0.0 to 0.0, polars does not
    names = (values.to_numpy() + 0.0).astype(str) if is_float else np.asarray(list(map(str, values)), str)
    return names, column.rank("dense").to_numpy().astype(np.int32) - 1
