"""Names of clients, one for each example, as numbers."""

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim.datasets.canonical import as_array, squeeze
from fedsim.datasets.portions import renumber
from fedsim.errors import DataError

NO_NAME = "NaN, None or a blank text"
MISSING_TYPES = ("NoneType", "NAType", "NaTType")  # of Python and pandas


def number_clients(name: str, parts: Sequence[Any]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The names [C] of the clients, sorted, and the client of each example in `parts`: client ids [M], [T].

    Raises `DataError` if an id is missing, or they are of several types, of which NumPy would make texts or floats.
    """
    arrays = []
    for ids in parts:
        ids = as_array(name, "client ids", np.asarray(ids, object) if isinstance(ids, list | tuple) else ids)
        arrays.append(squeeze(ids))
        if arrays[-1].ndim != 1:
            raise DataError(f"{name}: client ids must be [M], one per example, got {ids.shape}")
    missing = DataError(f"{name}: client ids must name the client of each example, got {NO_NAME}; leave these out")
    is_mixed = len({ids.dtype.kind for ids in arrays}) > 1
    ids = np.concatenate([ids.astype(object) if is_mixed else ids for ids in arrays])
    kinds = set(map(_kind, ids)) if ids.dtype.kind == "O" else {str(ids.dtype)}
    if NO_NAME in kinds or (ids.dtype.kind in "fmM" and np.any(ids != ids)):
        raise missing
    try:
        if len(kinds) > 1:
            raise TypeError
        names, positions = renumber(ids)
    except TypeError:  # they have no order
        found = " and ".join(sorted(kinds))
        raise DataError(f"{name}: client ids must be all texts, or all numbers, got {found}; convert them") from None
    if any(isinstance(text, str | bytes) and not text.strip() for text in names.tolist()):
        raise missing
    return names, np.split(positions, np.cumsum([len(part) for part in arrays])[:-1])


def _kind(value: Any) -> str:
    if type(value).__name__ in MISSING_TYPES or (isinstance(value, float) and value != value):
        return NO_NAME
    if isinstance(value, str):
        return "texts"
    return "numbers" if isinstance(value, numbers.Real | np.bool) else type(value).__name__
