"""The contract of a data set, as `fedsim.core.types.FederatedDataset` states it."""

from collections.abc import Collection
from typing import get_args

import numpy as np

from fedsim.core.types import FederatedDataset, InputKind
from fedsim.testing import require
from fedsim.testing.clauses import by_name, check


def _arrays(dataset: FederatedDataset) -> None:
    arrays = dataset.train._asdict() | {"x_test": dataset.x_test, "y_test": dataset.y_test}
    del arrays["malicious"]  # of runs
    for name, array in arrays.items():
        require.true(isinstance(array, np.ndarray), f"{name} must be a NumPy array, got {type(array).__name__}")


def _dtypes(dataset: FederatedDataset) -> None:
    label_dtype = np.int32 if dataset.num_classes else np.float32
    train = dataset.train
    for name, array, dtype in (
        ("y", train.y, label_dtype),
        ("y_test", dataset.y_test, label_dtype),
        ("offsets", train.offsets, np.int32),
        ("num_examples", train.num_examples, np.int32),
        ("corrupted", train.corrupted, np.bool_),
    ):
        require.true(array.dtype == dtype, f"{name} must be {np.dtype(dtype)}, got {array.dtype}")
    is_number = train.x.dtype.kind in "uif" and train.x.dtype.itemsize <= 4
    require.true(is_number, f"x must be numbers of at most 32 bits, as JAX has them, got {train.x.dtype}")


def _shapes(dataset: FederatedDataset) -> None:
    train = dataset.train
    require.true(len(train.x) == len(train.y), f"y must have {len(train.x)} rows, as x, got {len(train.y)}")
    require.true(train.y.ndim in (1, 2), f"y must have shape [M] or [M, T], got {train.y.shape}")
    for name in ("offsets", "num_examples", "corrupted"):
        shape, expected = getattr(train, name).shape, (len(train.num_examples),)
        require.true(shape == expected, f"{name} must have shape {expected}, as num_examples, got {shape}")


def _offsets(dataset: FederatedDataset) -> None:
    offsets, num_examples = dataset.train.offsets, dataset.train.num_examples
    is_possible = len(num_examples) > 0 and num_examples.min() >= 0 and num_examples.max() > 0
    require.true(is_possible, f"num_examples must be >= 0, and some > 0, got {num_examples}")
    expected = np.cumsum([0, *num_examples[:-1]])
    require.true(
        np.array_equal(offsets, expected), f"offsets must be {expected}, the previous clients' ends, got {offsets}"
    )
    total, num_labels = num_examples.sum(), len(dataset.train.y)
    require.true(total == num_labels, f"num_examples must sum to {num_labels}, the rows of y, got {total}")


def _labels(dataset: FederatedDataset) -> None:
    require.true(dataset.num_classes >= 0, f"num_classes must be >= 0, got {dataset.num_classes}")
    for name, y in (("y", dataset.train.y), ("y_test", dataset.y_test)):
        if dataset.num_classes and y.size:
            is_class = y.min() >= 0 and y.max() < dataset.num_classes
            require.true(is_class, f"{name} must be from 0 to {dataset.num_classes - 1}, got {y.min()} to {y.max()}")


def _finite(dataset: FederatedDataset) -> None:
    train = dataset.train
    for name, array in (("x", train.x), ("x_test", dataset.x_test), ("y", train.y), ("y_test", dataset.y_test)):
        require.true(array.dtype.kind != "f" or np.isfinite(array).all(), f"{name} must be finite")


def _test_examples(dataset: FederatedDataset) -> None:
    train, x_test, y_test = dataset.train, dataset.x_test, dataset.y_test
    require.true(len(y_test) > 0, "y_test must have at least one example")
    require.true(len(x_test) == len(y_test), f"y_test must have {len(x_test)} rows, as x_test, got {len(y_test)}")
    for name, array, test_array in (("x", train.x, x_test), ("y", train.y, y_test)):
        shape, test_shape = array.shape[1:], test_array.shape[1:]
        require.true(
            shape == test_shape, f"examples of {name}_test must have shape {shape}, as {name}, got {test_shape}"
        )
    require.true(train.x.dtype == x_test.dtype, f"x_test must be {train.x.dtype}, as x, got {x_test.dtype}")


def _inputs(dataset: FederatedDataset) -> None:
    x, inputs, kinds = dataset.train.x, dataset.inputs, get_args(InputKind)
    require.true(inputs in kinds, f"inputs must be one of {', '.join(kinds)}, got {inputs!r}")
    require.true(inputs != "image" or x.ndim == 4, f"x must be images [M, height, width, channels], got {x.shape}")
    is_text = x.ndim == 2 and x.dtype.kind in "iu"
    require.true(inputs != "text" or is_text, f"x must be texts, integers [M, T], got {x.dtype} {x.shape}")


def _test_clients(dataset: FederatedDataset) -> None:
    clients = dataset.test_clients
    if clients is not None:
        shape = dataset.y_test.shape[:1]
        require.true(clients.shape == shape, f"test_clients must have shape {shape}, as y_test, got {clients.shape}")
        require.true(clients.dtype == np.int32, f"test_clients must be int32, got {clients.dtype}")
        require.true(clients.min() >= 0, f"test_clients must be >= 0, got {clients.min()}")


def _clean(dataset: FederatedDataset) -> None:
    require.true(not dataset.train.corrupted.any(), "corrupted must be False for all clients")
    require.true(dataset.train.malicious is None, "malicious must be None")


CLAUSES = by_name(_arrays, _dtypes, _shapes, _offsets, _labels, _finite, _test_examples, _inputs, _test_clients, _clean)


def check_dataset(dataset: FederatedDataset, *, skip: Collection[str] = ()) -> None:
    """Raises `AssertionError` with a sentence if `dataset` violates the contract; `skip` names clauses to leave out.

    - arrays: all are NumPy arrays, on the host;
    - dtypes: labels are int32 (classes) or float32 (numbers), offsets and num_examples int32, inputs at most 32 bits;
    - shapes: x and y have M rows, and offsets, num_examples and corrupted N;
    - offsets: the M examples are ordered by client, without gaps;
    - labels: classes are from 0 to num_classes - 1;
    - finite: inputs and labels;
    - test_examples: there are some, shaped like the training examples;
    - inputs: their kind is known and fits their shape;
    - test_clients: None, or int32 [T], not negative;
    - clean: no client is marked as corrupted.

    >>> import numpy as np, fedsim
    >>> from fedsim.testing import check_dataset
    >>> x, y = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])
    >>> check_dataset(fedsim.from_arrays(x, y, [0, 0, 1, 1], x, y))
    """
    check(dataset, FederatedDataset, CLAUSES, lambda: dataset, skip)
