"""A `RawDataset` from the examples of its natural clients."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from fedsim.core.types import InputKind
from fedsim.datasets.portions import empty, portions
from fedsim.datasets.raw import RawDataset
from fedsim.datasets.spool import Spool
from fedsim.datasets.text import ALPHABET
from fedsim.errors import DataError

TRAIN, TEST = 0, 1

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

    A client may come in several parts; only one part is in memory at a time. `num_classes` defaults to the size of the
    alphabet for texts, otherwise to the largest label plus one. Raises `DataError` if there are no training examples,
    or input shapes differ.
    """
    spool, labels, parts = Spool(), [], []
    for part, clients in ((TRAIN, train), (TEST, test)):
        for client, x, y in clients:
            spool = _append(name, spool, x)
            labels.append(y.astype(np.int32))
            parts.append((part, client))
    if not any(part == TRAIN for part, _ in parts):
        raise DataError(f"{name}: no client has training examples")
    names = sorted({client for part, client in parts if part == TRAIN})
    names += sorted({client for _, client in parts} - set(names))
    position = {client: i for i, client in enumerate(names)}
    order = sorted(range(len(parts)), key=lambda i: (parts[i][0], position[parts[i][1]]))
    sizes = np.asarray([len(y) for y in labels])
    x = _reorder(spool.array(), sizes, order)
    y = np.concatenate([labels[i] for i in order])
    client_ids = np.repeat(np.asarray([position[parts[i][1]] for i in order], np.int32), sizes[order])
    num_train = sum(len(y) for y, (part, _) in zip(labels, parts, strict=True) if part == TRAIN)
    if num_classes is None:
        num_classes = len(ALPHABET) if inputs == "text" else 1 + max(0, int(y.max()))
    (x, x_test), (y, y_test), (ids, test_ids) = ((a[:num_train], a[num_train:]) for a in (x, y, client_ids))
    return RawDataset(name, x, y, x_test, y_test, num_classes, inputs, ids, test_ids, np.asarray(names))


def _append(name: str, spool: Spool, x: np.ndarray) -> Spool:
    """The spool with `x` appended; all inputs become floats if some pixels are not multiples of 1 / 255."""
    if spool.shape is not None and x.shape[1:] != spool.shape:
        raise DataError(f"{name}: inputs must have one shape, got {sorted(map(str, (spool.shape, x.shape[1:])))}")
    if spool.dtype not in (None, x.dtype):
        x = _to_float(x)
    if spool.dtype not in (None, x.dtype):
        pixels, spool = spool.array(), Spool()
        for portion in portions(pixels):
            spool.append(_to_float(pixels[portion]))
    spool.append(x)
    return spool


def _reorder(x: np.ndarray, sizes: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """The parts of `x` [M, ...] with these sizes, in another order; not copied if they are in this order."""
    if list(order) == list(range(len(order))):
        return x
    starts = np.cumsum(sizes) - sizes
    result, stop = empty(x.shape, x.dtype), 0
    for i in order:
        start, stop = stop, stop + sizes[i]
        result[start:stop] = x[starts[i] : starts[i] + sizes[i]]
    return result


def _to_float(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) / 255 if x.dtype == np.uint8 else x
