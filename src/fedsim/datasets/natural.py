"""A `RawDataset` from the examples of its natural clients."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from fedsim.core.types import InputKind
from fedsim.datasets.raw import RawDataset
from fedsim.datasets.text import ALPHABET
from fedsim.errors import DataError

ClientExamples: TypeAlias = tuple[str, np.ndarray, np.ndarray]
"""Name of a client, its x [m, *feature] and y [m]."""


def concatenate_clients(
    name: str,
    train: Iterable[ClientExamples],
    test: Iterable[ClientExamples] = (),
    *,
    inputs: InputKind,
    num_classes: int | None = None,
) -> RawDataset:
    """The data set of these clients, numbered by their sorted names; clients with training data come first.

    A client may come in several parts. `num_classes` defaults to the size of the alphabet for texts, otherwise to the
    largest label plus one. Raises `DataError` if there are no training examples, or input shapes differ.
    """
    train, test = list(train), list(test)
    if not train:
        raise DataError(f"{name}: no client has training examples")
    shapes = {x.shape[1:] for _, x, _ in (*train, *test)}
    if len(shapes) > 1:
        raise DataError(f"{name}: inputs must have one shape, got {sorted(map(str, shapes))}")
    if len({x.dtype for _, x, _ in (*train, *test)}) > 1:  # pixels, some of which are not multiples of 1 / 255
        train, test = ([(client, _to_float(x), y) for client, x, y in part] for part in (train, test))
    names = sorted({client for client, _, _ in train})
    names += sorted({client for client, _, _ in test} - set(names))
    position = {client: i for i, client in enumerate(names)}
    x, y, client_ids = _stack(train, position)
    x_test, y_test, test_client_ids = _stack(test, position) if test else (x[:0], y[:0], client_ids[:0])
    if num_classes is None:
        num_classes = len(ALPHABET) if inputs == "text" else 1 + int(max(y.max(), y_test.max(initial=0)))
    return RawDataset(name, x, y, x_test, y_test, num_classes, inputs, client_ids, test_client_ids, np.asarray(names))


def _stack(parts: Sequence[ClientExamples], position: dict[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y and client ids of all parts, in the order of the client ids."""
    parts = sorted(parts, key=lambda part: position[part[0]])
    client_ids = np.repeat([position[client] for client, _, _ in parts], [len(y) for _, _, y in parts])
    x, y = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    return x, y.astype(np.int32), client_ids.astype(np.int32)


def _to_float(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) / 255 if x.dtype == np.uint8 else x
