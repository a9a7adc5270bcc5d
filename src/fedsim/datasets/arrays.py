"""A user's own arrays as a data set: an .npz file, or arrays in Python."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from fedsim.config.registry import did_you_mean, nearest
from fedsim.core.types import FederatedDataset
from fedsim.datasets.partition import natural_test, natural_train
from fedsim.datasets.raw import BROKEN, Inputs, RawDataset, check, divide
from fedsim.errors import ConfigError, DataError

MANY, SPARSE = 100, 10  # classes, and how many times more than occur, from which labels are no numbers of classes
MOST_CHARACTERS = 200  # of what NumPy says of a broken file
NEEDED, OPTIONAL = ("x", "y", "x_test", "y_test"), ("client_ids", "test_client_ids", "inputs", "num_classes")


def arrays(seed: int, *, path: Annotated[str, "an .npz file"] = "") -> RawDataset:
    """The arrays of the file at `path`, as by `read_npz`."""
    del seed
    if not path:
        raise ConfigError(f"arrays.path: names no file; give it an .npz with {', '.join(NEEDED)}")
    return read_npz(Path(path).expanduser())


def from_arrays(
    x: np.ndarray,
    y: np.ndarray,
    client_ids: np.ndarray,
    x_test: np.ndarray,
    y_test: np.ndarray,
    *,
    test_client_ids: np.ndarray | None = None,
    num_classes: int | None = None,
    inputs: Inputs | None = None,
    name: str = "arrays",
) -> FederatedDataset:
    """Examples `x` [M, *feature], `y` [M] or [M, T] of clients `client_ids` [M] (any sortable names), and a test set.

    `x` is uint8 (the model sees it in [0, 1]), another integer or float. `y` is integer classes, or floats: numbers to
    predict. `num_classes` defaults to the largest class plus one, and is 0 for numbers. `inputs` defaults to "image"
    where `x` is [M, height, width, channels], else to "vector". `test_client_ids` says whose the test examples are.
    Raises `DataError` where the arrays do not fit together.
    """
    raw = check(_raw(name, x, y, x_test, y_test, num_classes, inputs, client_ids, test_client_ids))
    return divide(raw, natural_train(raw), natural_test(raw))


def read_npz(path: Path) -> RawDataset:
    """The arrays x, y, x_test, y_test of an .npz file; for natural clients client_ids and test_client_ids, too.

    The string `inputs` in it says what x is, and is needed for texts only; `num_classes` is as in `from_arrays`. Raises
    `DataError` where the file is broken, lacks one of the first four, or has others than these.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        loaded = np.load(path)
        if isinstance(loaded, np.ndarray):
            raise DataError(f"{path}: a single array; write several with np.savez: {', '.join(NEEDED)}")
        with loaded as file:
            if unknown := [name for name in file if name not in (*NEEDED, *OPTIONAL)]:
                known = did_you_mean(nearest(unknown[0], OPTIONAL)) or f"; it may have {', '.join(OPTIONAL)}"
                raise DataError(f"{path}: has {unknown[0]}, which says nothing to fedsim{known}")
            found: dict[str, Any] = {name: file[name] for name in (*NEEDED, *OPTIONAL) if name in file}
    except BROKEN as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:MOST_CHARACTERS]
        raise DataError(f"{path}: no .npz file with arrays: {reason}") from None
    if missing := [name for name in NEEDED if name not in found]:
        raise DataError(f"{path}: has no {missing[0]}; needed are {', '.join(NEEDED)}")
    if "inputs" in found:
        found["inputs"] = str(found["inputs"])
    if "num_classes" in found:
        found["num_classes"] = int(found["num_classes"])
    return _raw(path.stem, **found)


def _raw(
    name: str,
    x: np.ndarray,
    y: np.ndarray,
    x_test: np.ndarray,
    y_test: np.ndarray,
    num_classes: int | None = None,
    inputs: Inputs | None = None,
    client_ids: np.ndarray | None = None,
    test_client_ids: np.ndarray | None = None,
) -> RawDataset:
    x, y, x_test, y_test = (np.asarray(a) for a in (x, y, x_test, y_test))
    if num_classes is None:
        num_classes = _num_classes(name, y, y_test)
    names = None
    if client_ids is not None:
        if any(np.ndim(ids) != 1 for ids in (client_ids, test_client_ids) if ids is not None):
            raise DataError(f"{name}: client ids must be [M], one for each example")
        for ids in (np.asarray(ids) for ids in (client_ids, test_client_ids) if ids is not None):
            if ids.dtype.kind in "fO" and np.any(ids != ids):
                raise DataError(f"{name}: client ids contain NaN; say whose each example is")
        both = [client_ids] if test_client_ids is None else [client_ids, test_client_ids]
        names, ids = np.unique(np.concatenate(both), return_inverse=True)
        client_ids, *rest = np.split(ids, [len(client_ids)][: len(both) - 1])
        test_client_ids = rest[0] if rest else None
    inputs = inputs or ("image" if x.ndim == 4 else "vector")
    return RawDataset(name, x, y, x_test, y_test, num_classes, inputs, client_ids, test_client_ids, names)


def _num_classes(name: str, y: np.ndarray, y_test: np.ndarray) -> int:
    """The largest class plus one; 0 where the labels are floats."""
    parts = [labels for labels in (y, y_test) if labels.size]
    are_floats = {labels.dtype.kind == "f" for labels in parts}
    if len(are_floats) > 1:
        both = "both must be integers (classes) or both floats (numbers)"
        raise DataError(f"{name}: training labels are {y.dtype}, test labels {y_test.dtype}; {both}")
    if are_floats == {True}:
        return 0
    found = [labels for labels in parts if labels.dtype.kind in "biu"]
    number = 1 + max((int(labels.max()) for labels in found), default=0)
    different = len(np.unique(np.concatenate([labels.ravel() for labels in found]))) if found else 0
    if number > MANY and number > SPARSE * different:
        raise DataError(
            f"{name}: the largest label is {number - 1:,}, so there would be {number:,} classes, but only {different} "
            "occur; number them from 0, or say num_classes"
        )
    return number
