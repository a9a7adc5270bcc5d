"""Examples before they are divided among clients, and the checks that all data go through."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.errors import DataError
from fedsim.types import ClientData, FederatedDataset


@dataclass(frozen=True, eq=False)
class RawDataset:
    """A data set as it comes; client ids where the examples belong to clients by nature.

    Texts are characters as int8 (positions in an alphabet), so that uint8 always means pixels.
    """

    name: str
    x: np.ndarray  # [M, *feature] uint8 pixels, int8 characters, other integers or float32
    y: np.ndarray  # [M] int, 0 .. num_classes - 1
    x_test: np.ndarray  # [T, *feature]; T = 0: comes without a test set
    y_test: np.ndarray  # [T] int
    num_classes: int
    client_ids: np.ndarray | None = None  # [M] int
    test_client_ids: np.ndarray | None = None  # [T] int
    client_names: np.ndarray | None = None  # [C] str, the name of client id i
    label_names: np.ndarray | None = None  # [num_classes] str


def divide(raw: RawDataset, owner: np.ndarray, test_owner: np.ndarray | None = None) -> FederatedDataset:
    """`raw` with training example j given to client `owner[j]` (0 .. N - 1); examples keep their order within a client.

    Raises `DataError` where a client has no example.
    """
    counts = np.bincount(owner)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        raise DataError(f"{raw.name}: client {empty[0]} has no examples; every client needs at least one")
    in_order = bool(np.all(owner[1:] >= owner[:-1]))
    order = slice(None) if in_order else np.argsort(owner, kind="stable")
    train: dict[str, Any] = {
        "x": raw.x[order],
        "y": raw.y[order].astype(np.int32),
        "offsets": np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int32),
        "counts": counts.astype(np.int32),
        "corrupted": np.zeros(len(counts), bool),
    }
    y_test = raw.y_test.astype(np.int32)
    return FederatedDataset(raw.name, ClientData(**train), raw.x_test, y_test, raw.num_classes, test_owner)


def check(raw: RawDataset) -> RawDataset:
    """`raw`, or a `DataError` that says what is wrong with it."""
    for split, x, y, ids in [
        ("training", raw.x, raw.y, raw.client_ids),
        ("test", raw.x_test, raw.y_test, raw.test_client_ids),
    ]:
        if x.ndim < 1 or y.ndim != 1 or (ids is not None and ids.ndim != 1):
            raise DataError(f"{raw.name}: {split} inputs must be [M, ...], labels and client ids [M]")
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
        if ids is not None and len(ids) != len(y):
            raise DataError(f"{raw.name}: {len(y)} {split} examples but {len(ids)} client ids")
        if x.dtype.kind not in "biuf":
            raise DataError(f"{raw.name}: {split} inputs must be numbers, not {x.dtype}")
    if raw.x.shape[1:] != raw.x_test.shape[1:]:
        raise DataError(f"{raw.name}: training inputs are {raw.x.shape[1:]}, test inputs {raw.x_test.shape[1:]}")
    if raw.x.dtype != raw.x_test.dtype:
        raise DataError(f"{raw.name}: training inputs are {raw.x.dtype}, test inputs {raw.x_test.dtype}")
    return raw
