"""The user's table as a data set: CSV or Parquet files, or a data frame of pandas."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from fedsim.core.settings import Bounds, OnlyIf
from fedsim.core.types import FederatedDataset
from fedsim.datasets.arrays import federate
from fedsim.datasets.raw import RawDataset
from fedsim.errors import ConfigError, DataError, expand_user, import_extra, reason

if TYPE_CHECKING:
    import polars as pl

NO_TEXT, HAS_TEXT = OnlyIf("text", ""), OnlyIf("text", "", is_negated=True)


def table(
    seed: int,
    *,
    path: Annotated[str, "a .csv, .tsv or .parquet file with a row for each example, or a folder of parts"] = "",
    label: Annotated[str, "column of the labels: texts or whole numbers are classes, others are predicted"] = "",
    client: Annotated[str, "column that names the client of each row; default: none"] = "",
    drop: Annotated[tuple[str, ...], NO_TEXT, "columns to leave out; all others are features"] = (),
    standardize: Annotated[
        bool, NO_TEXT, "shift and scale columns of numbers to mean 0 and standard deviation 1 over all rows"
    ] = True,
    text: Annotated[str, "column of texts, whose first characters or tokens are the inputs in place of features"] = "",
    window: Annotated[int, Bounds(ge=1), HAS_TEXT, "characters or tokens of an input"] = 80,
    tokenizer: Annotated[
        str, HAS_TEXT, "file of a tokenizer (tokenizer.json) that divides texts; default: characters"
    ] = "",
) -> RawDataset:
    """The rows of the file at `path`, see `columns.encode` and `encode_texts`.

    Raises `ConfigError` if `path` or `label` is empty.
    """
    from fedsim.datasets.columns import encode, encode_texts
    from fedsim.datasets.table_files import read

    for key, value in (("path", path), ("label", label)):
        if not value:
            raise ConfigError(f'table.{key}: must name {"a file" if key == "path" else "a column"}, got ""')
    file = expand_user(path)
    (rows, index), name = read(file, label, client, None if text else {*drop}), file.absolute().name
    if text:
        return encode_texts(name, rows, text, label, client, window, tokenizer)
    return encode(name, rows, label, client, drop, standardize, index)


def from_pandas(
    df: Any,
    *,
    label: str,
    client: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    drop: Sequence[str] = (),
    standardize: bool = True,
    name: str = "pandas",
) -> FederatedDataset:
    """A federated data set of the rows of the data frame `df`, whose columns are features but for `label` and `client`.

    Texts and whole numbers in the column `label` are classes, numbered in sorted order; other numbers are predicted.
    Texts with at most 20 different values become one feature for each (one-hot), numbers are standardized unless
    `standardize` is False, and the columns `drop` are left out. `client` names the column of client ids; clients and
    the test set, `test_fraction` of each client's rows or of all, are as in `fedsim.from_arrays`. Raises `DataError`
    if a column is missing or cannot be used, or pandas is not installed.
    """
    pandas = import_extra("pandas", DataError, "from_pandas: needs pandas; pip install pandas")
    import polars as pl

    from fedsim.datasets.columns import encode

    if not isinstance(df, pandas.DataFrame):
        kind = type(df).__name__
        other = f"the {kind} of {type(df).__module__.partition('.')[0]}; use df.to_pandas()"
        raise DataError(f"df: must be a pandas.DataFrame, got {other if hasattr(df, 'to_pandas') else kind}")
    drop = [drop] if isinstance(drop, str) else list(map(str, drop))  # names of columns are texts
    label, client = str(label), "" if client is None else str(client)
    if levels := [name for name in df.index.names if name in (label, client) and name not in df.columns]:
        df = df.reset_index(levels)
    columns: dict[str, Any] = {}
    for i, column in enumerate(map(str, df.columns)):
        if column in columns:
            raise DataError(f"{name}: columns must have different names, got {column!r} more than once; rename them")
        is_used = column in (label, client) or column not in drop
        columns[column] = _to_polars(name, column, df.iloc[:, i]) if is_used else [None] * len(df)
    return federate(encode(name, pl.DataFrame(columns), label, client, drop, standardize), test_fraction, seed)


def _to_polars(name: str, column: str, values: Any) -> "pl.Series":
    """A column of a frame; intervals, as of `pandas.cut`, and periods are texts. Raises `DataError`."""
    import pandas
    import polars as pl

    kind, named = values.dtype, (pandas.IntervalDtype, pandas.PeriodDtype)
    try:
        if isinstance(kind, named):
            values = values.map(str, na_action="ignore")
        elif isinstance(kind, pandas.CategoricalDtype) and isinstance(kind.categories.dtype, named):
            values = values.cat.rename_categories(str)
        elif isinstance(kind, pandas.SparseDtype):
            values = values.sparse.to_dense()
        values = values.infer_objects()
        is_plain = isinstance(values.dtype, np.dtype) and values.dtype.kind in "biuf"
        cells = values.to_numpy() if is_plain else values.astype(object).where(values.notna(), None).tolist()
        series = pl.Series(column, cells)
        if series.dtype == pl.Object:
            raise TypeError(f"it is of type {kind}")
        return series
    except (pl.exceptions.PolarsError, ValueError, TypeError, OverflowError) as error:
        problem = reason(error)
        raise DataError(f"{name}: column {column!r} cannot be used: {problem}; change it, or add it to drop") from None
