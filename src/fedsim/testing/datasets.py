"""The contract of a data set, as `fedsim.core.types.FederatedDataset` states it."""

from collections.abc import Collection
from typing import Any

import numpy as np

from fedsim.core.types import FederatedDataset
from fedsim.testing.clauses import check, require

KINDS = ("image", "text", "vector")


def _arrays(dataset: FederatedDataset) -> None:
    arrays = dataset.train._asdict() | {"x_test": dataset.x_test, "y_test": dataset.y_test}
    for name, array in arrays.items():
        require(isinstance(array, np.ndarray), f"{name} is {type(array).__name__}, no NumPy array")


def _dtypes(dataset: FederatedDataset) -> None:
    labels = np.int32 if dataset.num_classes else np.float32
    train = dataset.train
    for name, array, wanted in (
        ("y", train.y, labels),
        ("y_test", dataset.y_test, labels),
        ("offsets", train.offsets, np.int32),
        ("counts", train.counts, np.int32),
        ("corrupted", train.corrupted, np.bool_),
    ):
        require(array.dtype == wanted, f"{name} is {array.dtype}, not {np.dtype(wanted)}")
    require(train.x.dtype.kind in "uif", f"x is {train.x.dtype}, no numbers")
    require(train.x.dtype not in (np.float64, np.int64), f"x is {train.x.dtype}, which JAX would make 32 bits")


def _shapes(dataset: FederatedDataset) -> None:
    train = dataset.train
    require(len(train.x) == len(train.y), f"{len(train.x)} inputs but {len(train.y)} labels")
    require(train.y.ndim in (1, 2), f"y is {train.y.shape}, neither [M] nor [M, T]")
    sizes = {array.shape for array in (train.offsets, train.counts, train.corrupted)}
    require(len(sizes) == 1 and train.counts.ndim == 1, "offsets, counts and corrupted are not all [N]")


def _offsets(dataset: FederatedDataset) -> None:
    offsets, counts = dataset.train.offsets, dataset.train.counts
    require(len(counts) > 0 and counts.min() >= 0 and counts.max() > 0, "counts are negative, or nobody has examples")
    wanted = np.cumsum([0, *counts[:-1]])
    require(np.array_equal(offsets, wanted), "the offsets are not where the clients before them end")
    require(counts.sum() == len(dataset.train.y), f"counts sum to {counts.sum()}, not to {len(dataset.train.y)}")


def _labels(dataset: FederatedDataset) -> None:
    require(dataset.num_classes >= 0, f"num_classes is {dataset.num_classes}")
    for name, y in (("training", dataset.train.y), ("test", dataset.y_test)):
        if dataset.num_classes:
            inside = y.min() >= 0 and y.max() < dataset.num_classes
            require(inside, f"a {name} label is not in 0..{dataset.num_classes - 1}")


def _finite(dataset: FederatedDataset) -> None:
    parts: dict[str, Any] = {
        "x": dataset.train.x,
        "x_test": dataset.x_test,
        "y": dataset.train.y,
        "y_test": dataset.y_test,
    }
    for name, array in parts.items():
        require(array.dtype.kind != "f" or np.isfinite(array).all(), f"{name} is not finite")


def _test(dataset: FederatedDataset) -> None:
    train, x_test, y_test = dataset.train, dataset.x_test, dataset.y_test
    require(len(y_test) > 0, "there are no test examples")
    require(len(x_test) == len(y_test), f"{len(x_test)} test inputs but {len(y_test)} test labels")
    pairs: dict[str, tuple[Any, Any]] = {"inputs": (train.x, x_test), "labels": (train.y, y_test)}
    for name, (one, other) in pairs.items():
        require(one.shape[1:] == other.shape[1:], f"training {name} are {one.shape[1:]}, test {name} {other.shape[1:]}")
    require(train.x.dtype == x_test.dtype, f"training inputs are {train.x.dtype}, test inputs {x_test.dtype}")


def _inputs(dataset: FederatedDataset) -> None:
    x, inputs = dataset.train.x, dataset.inputs
    require(inputs in KINDS, f'inputs are "{inputs}", which is none of {", ".join(KINDS)}')
    require(inputs != "image" or x.ndim == 4, f"images are [M, height, width, channels], and x is {x.shape}")
    is_text = x.ndim == 2 and x.dtype.kind in "iu"
    require(inputs != "text" or is_text, f"texts are integers [M, T], and x is {x.dtype} {x.shape}")


def _test_clients(dataset: FederatedDataset) -> None:
    clients = dataset.test_clients
    if clients is not None:
        require(clients.shape == dataset.y_test.shape[:1], f"test_clients is {clients.shape}, not one for each example")
        require(clients.dtype == np.int32, f"test_clients is {clients.dtype}, not int32")
        require(clients.min() >= 0, "a test client is negative")


def _clean(dataset: FederatedDataset) -> None:
    require(not dataset.train.corrupted.any(), "a client is marked as corrupted")


_CLAUSES = {
    "arrays": _arrays,
    "dtypes": _dtypes,
    "shapes": _shapes,
    "offsets": _offsets,
    "labels": _labels,
    "finite": _finite,
    "test": _test,
    "inputs": _inputs,
    "test_clients": _test_clients,
    "clean": _clean,
}
CLAUSES = tuple(_CLAUSES)


def check_dataset(dataset: FederatedDataset, *, skip: Collection[str] = ()) -> None:
    """Raises `AssertionError` with a sentence where it breaks the contract; `skip` names clauses to leave out.

    - arrays: all are NumPy's, on the host;
    - dtypes: labels int32 (classes) or float32 (numbers), offsets and counts int32, inputs no 64 bits;
    - shapes: x and y have M rows, offsets, counts and corrupted N;
    - offsets: the clients' examples lie one client behind the other, and are all M;
    - labels: classes lie in 0 .. num_classes - 1;
    - finite: inputs and labels;
    - test: there are test examples, shaped like the training examples;
    - inputs: their kind is known and fits their shape;
    - test_clients: None, or int32 [T] from 0;
    - clean: nobody is marked as corrupted.
    """
    check(_CLAUSES, lambda: dataset, skip)
