"""A user's own arrays as a federated data set."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from fedsim.datasets.partition import natural, natural_test
from fedsim.datasets.raw import RawDataset, check, divide
from fedsim.errors import DataError
from fedsim.types import FederatedDataset

NEEDED, OPTIONAL = ("x", "y", "x_test", "y_test"), ("client_ids", "test_client_ids")


def from_arrays(
    x: np.ndarray,
    y: np.ndarray,
    client_ids: np.ndarray,
    x_test: np.ndarray,
    y_test: np.ndarray,
    *,
    test_client_ids: np.ndarray | None = None,
    num_classes: int | None = None,
    name: str = "arrays",
) -> FederatedDataset:
    """Examples `x` [M, *feature], `y` [M] of the clients `client_ids` [M] (any sortable names), and a test set.

    `x` is uint8 (pixels; the model sees them in [0, 1]), int8 (characters), another integer or float. `num_classes`
    defaults to the largest label plus one; `test_client_ids` [T] says whose the test examples are. Raises `DataError`
    where the arrays do not fit together.
    """
    raw = check(_raw(name, x, y, x_test, y_test, num_classes, client_ids, test_client_ids))
    return divide(raw, natural(raw), natural_test(raw))


def load(path: Path) -> RawDataset:
    """The arrays x, y, x_test, y_test and, for natural clients, client_ids and test_client_ids of an .npz file.

    Raises `DataError` where the file is broken, or lacks one of the first four.
    """
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in (*NEEDED, *OPTIONAL) if name in file}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, AttributeError, TypeError) as error:
        raise DataError(f"{path}: no .npz file with arrays: {error}") from None
    if missing := [name for name in NEEDED if name not in arrays]:
        raise DataError(f"{path}: has no {missing[0]}; needed are {', '.join(NEEDED)}")
    return _raw(path.stem, **arrays)


def _raw(
    name: str,
    x: np.ndarray,
    y: np.ndarray,
    x_test: np.ndarray,
    y_test: np.ndarray,
    num_classes: int | None = None,
    client_ids: np.ndarray | None = None,
    test_client_ids: np.ndarray | None = None,
) -> RawDataset:
    x, y, x_test, y_test = (np.asarray(a) for a in (x, y, x_test, y_test))
    x, x_test = (a.astype(np.float32) if a.dtype == np.float64 else a for a in (x, x_test))
    if num_classes is None:
        num_classes = 1 + max((int(a.max()) for a in (y, y_test) if a.size and a.dtype.kind in "biu"), default=0)
    names = None
    if client_ids is not None:
        if any(np.ndim(ids) != 1 for ids in (client_ids, test_client_ids) if ids is not None):
            raise DataError(f"{name}: client ids must be [M], one for each example")
        both = [client_ids] if test_client_ids is None else [client_ids, test_client_ids]
        names, ids = np.unique(np.concatenate(both), return_inverse=True)
        client_ids, *rest = np.split(ids, [len(client_ids)][: len(both) - 1])
        test_client_ids = rest[0] if rest else None
    return RawDataset(name, x, y, x_test, y_test, num_classes, client_ids, test_client_ids, names)
