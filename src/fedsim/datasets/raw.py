"""Examples before they are divided among clients, and the checks that all data go through."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.errors import DataError
from fedsim.types import ClientData, FederatedDataset


@dataclass(frozen=True, eq=False)
class RawDataset:
    """A data set as it comes; `client_ids` where the examples belong to clients by nature."""

    name: str
    x: np.ndarray  # [M, *feature] uint8, integer or float32
    y: np.ndarray  # [M] int, 0 .. num_classes - 1
    x_test: np.ndarray  # [T, *feature]
    y_test: np.ndarray  # [T] int
    num_classes: int
    client_ids: np.ndarray | None = None  # [M] any sortable names


def divide(raw: RawDataset, owner: np.ndarray) -> FederatedDataset:
    """`raw` with training example j given to client `owner[j]` (0 .. N - 1); examples keep their order within a client.

    Raises `DataError` where a client has no example.
    """
    counts = np.bincount(owner)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        raise DataError(f"{raw.name}: client {empty[0]} has no examples; every client needs at least one")
    order = np.argsort(owner, kind="stable")
    train: dict[str, Any] = {
        "x": raw.x[order],
        "y": raw.y[order].astype(np.int32),
        "offsets": np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int32),
        "counts": counts.astype(np.int32),
        "corrupted": np.zeros(len(counts), bool),
    }
    return FederatedDataset(raw.name, ClientData(**train), raw.x_test, raw.y_test.astype(np.int32), raw.num_classes)


def check(raw: RawDataset) -> RawDataset:
    """`raw`, or a `DataError` that says what is wrong with it."""
    for split, x, y in [("training", raw.x, raw.y), ("test", raw.x_test, raw.y_test)]:
        if len(x) != len(y):
            raise DataError(f"{raw.name}: {len(x)} {split} inputs but {len(y)} labels")
        if len(y) == 0:
            raise DataError(f"{raw.name}: no {split} examples")
        if not np.issubdtype(y.dtype, np.integer):
            raise DataError(f"{raw.name}: {split} labels must be integers, not {y.dtype}")
        if y.min() < 0 or y.max() >= raw.num_classes:
            raise DataError(f"{raw.name}: {split} labels must lie in 0..{raw.num_classes - 1}")
        if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
            raise DataError(f"{raw.name}: {split} inputs contain NaN or infinity")
    if raw.x.shape[1:] != raw.x_test.shape[1:]:
        raise DataError(f"{raw.name}: training inputs are {raw.x.shape[1:]}, test inputs {raw.x_test.shape[1:]}")
    if raw.client_ids is not None and len(raw.client_ids) != len(raw.y):
        raise DataError(f"{raw.name}: {len(raw.y)} training examples but {len(raw.client_ids)} client ids")
    return raw
