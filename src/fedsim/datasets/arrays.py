"""The user's arrays as a data set: a folder of .npy files, an .npz file, or arrays in Python.

The files of a folder are memory-mapped; an .npz file is read into memory.
"""

import numbers
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from fedsim.config.registry import did_you_mean, nearest
from fedsim.core.types import FederatedDataset, InputKind
from fedsim.datasets.canonical import as_array, canonicalize, count_classes
from fedsim.datasets.client_ids import name_remarks, number_clients
from fedsim.datasets.federated import make_federated_dataset
from fedsim.datasets.partition import describe_natural_clients
from fedsim.datasets.portions import is_whole
from fedsim.datasets.raw import RawDataset
from fedsim.errors import LOAD_ERRORS, ConfigError, DataError, expand_user, reason

REQUIRED = ("x", "y")
OPTIONAL = ("x_test", "y_test", "client_ids", "test_client_ids", "inputs", "num_classes")


def arrays(seed: int, *, path: Annotated[str, "a folder of .npy files, or an .npz file"] = "") -> RawDataset:
    """The arrays of the file or folder at `path`, see `read`. Raises `ConfigError` if `path` is empty."""
    if not path:
        raise ConfigError(
            'arrays.path: must name a folder of .npy files, or an .npz file, with x and y, got ""; a data set in '
            "memory is given in Python, by fedsim.load(..., data=dataset)"
        )
    return read(expand_user(path))


def from_arrays(
    x: np.ndarray,
    y: np.ndarray,
    client_ids: np.ndarray | None = None,
    x_test: np.ndarray | None = None,
    y_test: np.ndarray | None = None,
    *,
    test_client_ids: np.ndarray | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    num_classes: int | None = None,
    inputs: InputKind | None = None,
    name: str = "arrays",
) -> FederatedDataset:
    """A federated data set of examples `x` [M, *feature], `y` [M] or [M, T] of clients `client_ids` [M].

    Client ids are texts, numbers or other names that can be sorted; without them, all examples belong to one client,
    which a partition of the configuration divides. `x` holds numbers; pixels of images, of 0 to 255 or of 16 bits,
    are seen in [0, 1] by models. `y` holds integer classes, or floats to predict. `num_classes` defaults to
    the largest class plus one, and is 0 for floats. It must be given as 0 for whole numbers to predict, which may be
    meant as classes. `inputs` defaults to "image" if `x` is [M, height, width, channels], else to "vector".
    `test_client_ids` [T] are the clients of the test examples `x_test` [T, *feature], `y_test` [T] or [T, ...]. Without
    test examples, `test_fraction` of the examples become test examples, drawn by `seed`: from each client if there are
    `client_ids`, where clients with a single example are left out; otherwise from all. With `inputs="text"` they are
    the last ones of each client, since texts are taken for windows of one text, each a character after the one before,
    and those that overlap both parts are left out. Arrays may be shared, not copied: do not change them while the data
    set is used. Raises `DataError` if the arrays do not fit together or values are missing.

    >>> import numpy as np
    >>> x, y = np.zeros((4, 2)), np.asarray([0, 1, 1, 0])
    >>> dataset = from_arrays(x, y, np.asarray(["bob", "al", "bob", "bob"]), x, y)
    >>> dataset.train.num_examples.tolist(), dataset.train.y.tolist()
    ([1, 3], [1, 0, 1, 0])
    >>> dataset = from_arrays(x, y, test_fraction=0.25)
    >>> dataset.train.num_examples.tolist(), len(dataset.y_test)
    ([3], 1)
    """
    raw = make_raw(name, x, y, x_test, y_test, num_classes, inputs, client_ids, test_client_ids)
    return federate(raw, test_fraction, seed, needs_test=x_test is not None)


def federate(raw: RawDataset, test_fraction: float, seed: int, needs_test: bool = False) -> FederatedDataset:
    """The data set with its natural clients, or with one; split as in `from_arrays` if it has and needs no test set."""
    from fedsim.datasets.sampling import split_test  # msgspec is imported only where it is needed

    raw = canonicalize(raw, needs_test)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise DataError(f"seed: must be an integer >= 0, got {seed!r}")
    if len(raw.y_test) == 0:
        if not isinstance(test_fraction, numbers.Real) or not 0 < test_fraction < 1:
            raise DataError(f"test_fraction: must be between 0 and 1, got {test_fraction!r}")
        raw = split_test(raw, test_fraction, np.random.default_rng([seed, 2]))  # as data.seed does
    client_ids = np.zeros(len(raw.y), np.int32) if raw.client_ids is None else raw.client_ids
    if raw.client_ids is not None and (client_ids == client_ids[0]).all():
        name = client_ids[0] if raw.client_names is None else raw.client_names[client_ids[0]]
        examples = "examples" if raw.client_names is None or len(raw.client_names) == 1 else "training examples"
        raise DataError(
            f"{raw.name}: client ids must name several clients, got {name} for all {examples}; leave them out, and "
            "data.partition divides the examples"
        )
    return make_federated_dataset(raw, np.unique(client_ids, return_inverse=True)[1], *describe_natural_clients(raw))


def read(path: Path) -> RawDataset:
    """The arrays x, y and optionally x_test, y_test, and for natural clients client_ids and test_client_ids.

    `path` is a folder with an .npy file for each, such as x.npy, or an .npz file. `num_classes` and the string `inputs`
    in it are as in `from_arrays`; texts need `inputs`. Raises `DataError` if a file is broken, x, y or one of the two
    test arrays is missing, or there are unknown ones.
    """
    values: dict[str, Any] = _map_folder(path) if path.is_dir() else _read_npz(path)
    if missing := [name for name in REQUIRED if name not in values]:
        raise DataError(f"{path}: must have the arrays x and y, got no {missing[0]} but {', '.join(values) or 'none'}")
    if unknown := [name for name in values if name not in (*REQUIRED, *OPTIONAL)]:
        hint = did_you_mean(nearest(unknown[0], OPTIONAL)) or f"; it may have {', '.join(OPTIONAL)}"
        raise DataError(f"{path}: unknown array {unknown[0]}{hint}")
    for name, kinds in (("inputs", "U"), ("num_classes", "iu")):
        if name in values:
            if values[name].shape != () or values[name].dtype.kind not in kinds:
                what = "an integer" if name == "num_classes" else "a text"
                raise DataError(f"{path}: {name} must be {what}, got {values[name].dtype} {values[name].shape}")
            values[name] = values[name].item()
    return make_raw(path.absolute().stem, **values)


def _map_folder(folder: Path) -> dict[str, np.ndarray]:
    """The arrays in the folder by name, memory-mapped and read-only."""
    values = {}
    for path in sorted(folder.glob("*.npy")):
        try:
            values[path.stem] = np.load(path, mmap_mode="r")
        except LOAD_ERRORS as error:
            raise _unreadable(path, "an .npy file", error) from None
    return values


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays in the file by name."""
    if not path.is_file():
        raise DataError(f"{path}: no such file or folder")
    try:
        loaded = np.load(path)
        if isinstance(loaded, np.ndarray):
            raise DataError(
                f"{path}: must be an .npz file or a folder, got a single array; give its folder, with x and y"
            )
        with loaded as file:
            return dict(file)
    except LOAD_ERRORS as error:
        raise _unreadable(path, "an .npz file with arrays", error) from None


def _unreadable(path: Path, what: str, error: Exception) -> DataError:
    text = reason(error).rstrip(".")
    if isinstance(error, PermissionError):
        return DataError(f"{path}: cannot be read: {text}")
    remedy = "; save it as numbers or texts, such as by .astype(str)" * ("bject" in text)
    problem = "it has another format" if "pickled" in text else f"{text}{remedy}"  # which NumPy tries last
    return DataError(f"{path}: not {what}: {problem}")


def make_raw(
    name: str,
    x: np.ndarray,
    y: np.ndarray,
    x_test: np.ndarray | None = None,
    y_test: np.ndarray | None = None,
    num_classes: int | None = None,
    inputs: InputKind | None = None,
    client_ids: np.ndarray | None = None,
    test_client_ids: np.ndarray | None = None,
) -> RawDataset:
    """The data set of these arrays, with clients numbered in the order of their names."""
    if (x_test is None) != (y_test is None):
        raise DataError(
            f"{name}: must have both x_test and y_test, or neither, got no {'x' if x_test is None else 'y'}_test"
        )
    if x_test is None and test_client_ids is not None:
        raise DataError(f"{name}: test_client_ids must be left out without x_test and y_test")
    if client_ids is None and test_client_ids is not None:
        raise DataError(f"{name}: test_client_ids must be left out without client_ids")
    x, y = as_array(name, "x", x), as_array(name, "y", y)
    x_test, y_test = (
        np.atleast_1d(a)[:0] if b is None else as_array(name, f"{what}_test", b)
        for what, a, b in (("x", x, x_test), ("y", y, y_test))
    )
    if isinstance(num_classes, bool) or not isinstance(num_classes, int | np.integer | None):
        raise DataError(f"{name}: num_classes must be an integer, got {num_classes!r}")
    names, notes = None, []
    if num_classes is None or (num_classes and _is_one_hot(y)):
        num_classes = _infer_num_classes(name, y, y_test)
        labels = np.append(y, y_test)
        counts = np.bincount(labels.astype(np.intp).clip(0)) if labels.dtype.kind in "iu" else np.ones(1)
        if not counts.all():
            notes.append(f"{name}: class {counts.argmin()} does not occur; renumber the labels, or give num_classes")
    if client_ids is not None:
        parts = [ids for ids in (client_ids, test_client_ids) if ids is not None]
        names, numbers = number_clients(name, parts)
        client_ids, test_client_ids = numbers if len(parts) > 1 else (numbers[0], None)
        notes += [f"{name}: client ids have {found}" for found in name_remarks(names)]
    inputs = inputs or ("image" if x.ndim == 4 else "vector")
    ids = client_ids, test_client_ids, names
    return RawDataset(name, x, y, x_test, y_test, num_classes, inputs, *ids, notes=tuple(notes))


def _infer_num_classes(name: str, y: np.ndarray, y_test: np.ndarray) -> int:
    """The largest class plus one; 0 if the labels are floats. Raises `DataError` for labels that may be either."""
    parts = [labels for labels in (y, y_test) if labels.size]
    for labels in filter(_is_one_hot, parts):
        raise DataError(
            f"{name}: labels must be class numbers [M], got one-hot labels [M, {labels.shape[1]}]; use "
            "y.argmax(axis=1), or num_classes = 0 for a regression"
        )
    is_float = {labels.dtype.kind == "f" for labels in parts}
    if len(is_float) > 1:
        raise DataError(
            f"{name}: training and test labels must both be integers (classes) or both floats (numbers), got {y.dtype} "
            f"and {y_test.dtype}"
        )
    if is_float == {True}:
        if all(map(is_whole, parts)):
            raise DataError(
                f"{name}: labels must be integers for classes, or numbers for a regression, got {y.dtype} numbers that "
                "are all whole; use y.astype(int) for classes, or num_classes = 0 for a regression"
            )
        return 0
    integers = [labels.ravel() for labels in parts if labels.dtype.kind in "biu"]
    return count_classes(name, np.concatenate(integers), "renumber them, or pass num_classes") if integers else 1


def _is_one_hot(labels: np.ndarray) -> bool:
    """Whether each row of `labels` [M, C] is the indicator of a class."""
    is_matrix = labels.ndim == 2 and labels.shape[1] > 1 and labels.dtype.kind in "biuf"
    return is_matrix and bool(np.all((labels == 0) | (labels == 1)) and np.all(labels.sum(axis=1) == 1))
