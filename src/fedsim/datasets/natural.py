"""From examples client by client, where clients are natural, to a `RawDataset`."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from fedsim.datasets.raw import Inputs, RawDataset
from fedsim.datasets.text import LETTERS
from fedsim.errors import DataError

ClientExamples: TypeAlias = tuple[str, np.ndarray, np.ndarray]  # a client's name, x [m, *feature] and y [m]


def gather(
    name: str,
    train: Iterable[ClientExamples],
    test: Iterable[ClientExamples] = (),
    *,
    inputs: Inputs,
    num_classes: int | None = None,
) -> RawDataset:
    """A data set of its clients' examples. Client ids follow the sorted names, of those with training data first.

    A client may come in several parts. `num_classes` defaults to the alphabet's size for texts, to the largest label
    plus one for others. Raises `DataError` where inputs do not fit together.
    """
    train, test = list(train), list(test)
    if not train:
        raise DataError(f"{name}: no client has training examples")
    shapes = {x.shape[1:] for _, x, _ in (*train, *test)}
    if len(shapes) > 1:
        raise DataError(f"{name}: inputs of different shapes: {sorted(map(str, shapes))}")
    if len({x.dtype for _, x, _ in (*train, *test)}) > 1:  # pixels, some of them between the steps of uint8
        train, test = ([(client, _as_float(x), y) for client, x, y in part] for part in (train, test))
    names = sorted({client for client, _, _ in train})
    names += sorted({client for client, _, _ in test} - set(names))
    position = {client: i for i, client in enumerate(names)}
    x, y, client_ids = _stack(train, position)
    x_test, y_test, test_client_ids = _stack(test, position) if test else (x[:0], y[:0], client_ids[:0])
    if num_classes is None:
        num_classes = len(LETTERS) if inputs == "text" else 1 + int(max(y.max(), y_test.max(initial=0)))
    return RawDataset(name, x, y, x_test, y_test, num_classes, inputs, client_ids, test_client_ids, np.asarray(names))


def _stack(parts: Sequence[ClientExamples], position: dict[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y and client ids of all parts, in order of the clients."""
    parts = sorted(parts, key=lambda part: position[part[0]])
    client_ids = np.repeat([position[client] for client, _, _ in parts], [len(y) for _, _, y in parts])
    x, y = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    return x, y.astype(np.int32), client_ids.astype(np.int32)


def _as_float(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) / 255 if x.dtype == np.uint8 else x
