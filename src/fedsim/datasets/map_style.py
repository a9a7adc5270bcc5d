"""Map-style data sets, as of torchvision, WILDS, medmnist and `torch.utils.data`, in memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from fedsim.core.types import FederatedDataset, InputKind
from fedsim.datasets.arrays import federate, make_raw
from fedsim.datasets.pictures import decode, stack
from fedsim.errors import DataError


class MapStyle(Protocol):
    """A data set whose examples are an input, a label and maybe more."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> Any: ...


def from_dataset(
    train: MapStyle,
    test: MapStyle | None = None,
    *,
    client: Callable[..., Any] | Sequence[Any] | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    num_classes: int | None = None,
    inputs: InputKind | None = None,
    name: str = "dataset",
) -> FederatedDataset:
    """A federated data set of the examples of `train` and `test`, each an input, a label and maybe more.

    Inputs are pictures of Pillow, arrays, or tensors, of which those [channels, height, width] with no more channels
    than rows and columns become [height, width, channels]. `client` is called with each example, such as
    `lambda x, y, place: int(place[0])`, and returns the name of its client; or it has the names of those of `train`.
    Names of classes are those of `train.classes`. All else is as in `fedsim.from_arrays`. Raises `DataError` if
    examples do not fit together.

    >>> examples = [(np.zeros(2), 0, "Ann"), (np.ones(2), 1, "Bob"), (np.ones(2), 1, "Ann"), (np.zeros(2), 0, "Bob")]
    >>> dataset = from_dataset(examples, client=lambda x, y, owner: owner, test_fraction=0.5)
    >>> dataset.client_names, dataset.train.num_examples.tolist()
    (('Ann', 'Bob'), [1, 1])
    """
    x, y, ids = _read(name, train, client)
    x_test, y_test, test_ids = (None, None, None) if test is None else _read(name, test, client)
    owners: Any = ids if callable(client) else client
    raw = make_raw(name, x, y, x_test, y_test, num_classes, inputs, owners, test_ids)
    classes = getattr(train, "classes", None)
    if isinstance(classes, list | tuple) and 0 < len(classes) == raw.num_classes:
        raw = replace(raw, label_names=np.asarray(list(map(str, classes))))
    return federate(raw, test_fraction, seed, needs_test=test is not None)


def _read(name: str, examples: MapStyle, client: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Inputs, labels, and the names of the clients if `client` is a function."""
    labels: list[np.ndarray] = []
    clients: list[Any] = []

    def read(position: int) -> np.ndarray:
        example = examples[position]
        if not isinstance(example, tuple | list) or len(example) < 2:
            raise ValueError(f"must be an input and a label, got {type(example).__name__}")
        labels.append(np.asarray(example[1]))
        if callable(client):
            clients.append(client(*example))
        return _input(example[0])

    if not hasattr(examples, "__len__"):
        raise DataError(f"{name}: must have a length, got {type(examples).__name__}; make a list of its examples")
    if not len(examples):
        raise DataError(f"{name}: must have examples, got none")
    x = stack(name, ((f"example {position}", partial(read, position)) for position in range(len(examples))))
    if len(shapes := {label.shape for label in labels}) > 1:
        raise DataError(f"{name}: labels must have one shape, got {', '.join(sorted(map(str, shapes)))}")
    return x, np.stack(labels), clients if callable(client) else None


def _input(value: Any) -> np.ndarray:
    """A picture of Pillow, an array or a tensor as an array, with channels last."""
    if hasattr(value, "getextrema"):
        return decode(value)
    is_tensor = not isinstance(value, np.ndarray) and hasattr(value, "numpy")
    array = np.asarray(value.numpy() if is_tensor else value)
    is_image = is_tensor and array.ndim == 3 and array.shape[0] <= min(array.shape[1:])
    return np.moveaxis(array, 0, -1) if is_image else array
