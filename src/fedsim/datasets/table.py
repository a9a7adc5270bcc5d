"""The user's table as a data set: a .csv or .parquet file, or a data frame of pandas."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedsim.core.types import FederatedDataset
from fedsim.datasets.arrays import federate
from fedsim.datasets.columns import encode
from fedsim.datasets.raw import RawDataset
from fedsim.errors import ConfigError, DataError, import_extra

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".csv", ".parquet")


def table(
    seed: int,
    *,
    path: Annotated[str, "a .csv or .parquet file with a row for each example"] = "",
    label: Annotated[str, "column of the labels: texts or whole numbers are classes, others are predicted"] = "",
    client: Annotated[str, "column that names the client of each row; default: none"] = "",
    drop: Annotated[tuple[str, ...], "columns to leave out; all others are features"] = (),
    standardize: Annotated[
        bool, "shift and scale columns of numbers to mean 0 and standard deviation 1 over all rows"
    ] = True,
) -> RawDataset:
    """The rows of the file at `path`, see `columns.encode`. Raises `ConfigError` if `path` or `label` is empty."""
    del seed
    for key, value in (("path", path), ("label", label)):
        if not value:
            raise ConfigError(f'table.{key}: must name {"a file" if key == "path" else "a column"}, got ""')
    file = Path(path).expanduser()
    return encode(file.name, read(file), label, client, drop, standardize)


def read(path: Path) -> "pa.Table":
    """The table in the file at `path`. Raises `DataError` if it cannot be read."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    if path.suffix not in SUFFIXES:
        raise DataError(f"{path}: must be a {' or '.join(SUFFIXES)} file")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        rows = csv.read_csv(path) if path.suffix == ".csv" else parquet.read_table(path)
        _ = rows.column_names  # raises if they are not UTF-8
        return rows
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise DataError(f"{path}: not a {path.suffix} table: {reason}") from None


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
    import pyarrow as pa

    if not isinstance(df, pandas.DataFrame):
        raise DataError(f"df: must be a pandas.DataFrame, got {type(df).__name__}")
    try:
        rows = pa.Table.from_pandas(df, preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{name}: {' '.join(map(str, error.args))[:200]}") from None
    drop = [drop] if isinstance(drop, str) else list(map(str, drop))  # Arrow's names are texts
    client = "" if client is None else str(client)
    return federate(encode(name, rows, str(label), client, drop, standardize), test_fraction, seed)
