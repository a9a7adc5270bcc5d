"""A `RawDataset` from the examples of its natural clients."""

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from fedsim.core.types import InputKind
from fedsim.datasets.canonical import count_classes
from fedsim.datasets.portions import Spool, portions, sorting, take
from fedsim.datasets.raw import RawDataset
from fedsim.datasets.scales import scale_pixels
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

    A client may come in several parts; only one part is in memory at a time. `num_classes` defaults to the largest
    label plus one. Raises `DataError` if there are no training examples, or input shapes differ.
    """
    spool, labels, parts = Spool(), [], []
    for is_test, clients in ((False, train), (True, test)):
        for client, x, y in clients:
            spool = append(name, spool, x, f"client {client}")
            labels.append(y.astype(np.int32))
            parts.append((is_test, client))
    names = sorted({client for is_test, client in parts if not is_test})
    if not names:
        raise DataError(f"{name}: no client has training examples")
    names += sorted({client for _, client in parts} - set(names))
    position = {client: i for i, client in enumerate(names)}
    groups = np.asarray([is_test * len(names) + position[client] for is_test, client in parts], np.int32)
    groups = np.repeat(groups, [len(y) for y in labels])  # of examples: training clients, then those of the test
    order = sorting(groups)
    x, y, client_ids = take(spool.array(), order), np.concatenate(labels)[order], groups[order] % len(names)
    num_train = np.count_nonzero(groups < len(names))
    num_classes = count_classes(name, y) if num_classes is None else num_classes
    (x, x_test), (y, y_test), (ids, test_ids) = ((a[:num_train], a[num_train:]) for a in (x, y, client_ids))
    return RawDataset(name, x, y, x_test, y_test, num_classes, inputs, ids, test_ids, np.asarray(names))


def append(name: str, spool: Spool, x: np.ndarray, owner: str) -> Spool:
    """The spool with the inputs `x` of `owner` appended, as floats if pixels have several types, as RGB if some do.

    Raises `DataError` if shapes or types differ otherwise.
    """
    if spool.shape is None or (spool.shape, spool.dtype) == (x.shape[1:], x.dtype):
        spool.append(x)
        return spool
    shapes, channels = (spool.shape, x.shape[1:]), {spool.shape[-1:], x.shape[-1:]}
    if len({*shapes}) > 1 and not (x.ndim == 4 and spool.shape[:-1] == x.shape[1:-1] and channels == {(1,), (3,)}):
        raise DataError(f"{name}: inputs must have one shape, got {spool.shape} and {x.shape[1:]} of {owner}")
    scale = scale_pixels if spool.dtype != x.dtype else np.asarray
    earlier = np.empty((0, *spool.shape), spool.dtype)
    if scale(earlier).dtype != scale(x[:0]).dtype:
        raise DataError(f"{name}: inputs must have one type, got {spool.dtype} and {x.dtype} of {owner}")
    unify = lambda part: np.broadcast_to(scale(part), (len(part), *max(shapes)))
    if (earlier.shape, earlier.dtype) != (unify(earlier).shape, unify(earlier).dtype):
        earlier, spool = spool.array(), Spool()
        for portion in portions(earlier):
            spool.append(unify(earlier[portion]))
    spool.append(unify(x))
    return spool
