"""Names of clients, one for each example, as numbers; and names that may not be meant as they are written."""

import numbers
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from fedsim.datasets.canonical import as_array, squeeze
from fedsim.errors import DataError

NO_NAME = "NaN, None or a blank text"
MISSING = (  # texts that pandas takes for missing
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
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
        names, positions = np.unique(ids, return_inverse=True)
    except TypeError:  # they have no order
        found = " and ".join(sorted(kinds))
        raise DataError(f"{name}: client ids must be all texts, or all numbers, got {found}; convert them") from None
    if any(isinstance(text, str | bytes) and not text.strip() for text in names.tolist()):
        raise missing
    if isinstance(next(iter(names), None), bytes):  # as of HDF5
        names = np.asarray([text.decode(errors="replace") for text in names])
    return names, np.split(positions, np.cumsum([len(part) for part in arrays])[:-1])


def _kind(value: Any) -> str:
    if type(value).__name__ in MISSING_TYPES or (isinstance(value, float) and value != value):
        return NO_NAME
    if isinstance(value, str):
        return "texts"
    return "numbers" if isinstance(value, numbers.Real | np.bool) else type(value).__name__


def name_remarks(names: np.ndarray | None, also_missing: str = "") -> Iterator[str]:
    """What is questionable about names of classes or clients: texts that mean missing, and the first that look alike.

    `also_missing` is another text that is no name, such as that of the column.
    """
    texts = [] if names is None else [name for name in names.tolist() if isinstance(name, str)]
    for text in texts:
        if text in ("NaT", also_missing, *MISSING):
            yield f"the text {text!r}, which is taken for a name like others"
    if alike := find_twins(texts, _fold):
        yield f"{alike[0]!r} and {alike[1]!r}, which are taken for different names"


def _fold(text: str) -> str | Decimal:
    folded = " ".join(unicodedata.normalize("NFKC", text.casefold() if len(text) > 1 else text).split())
    return Decimal(folded) if text.isascii() and NUMBER.fullmatch(folded) else folded


def find_twins(texts: Iterable[str], key: Callable[[str], Any]) -> tuple[str, str] | None:
    """Two different texts with the same `key`, if there are any."""
    first: dict[Any, str] = {}
    return next(((other, text) for text in texts if (other := first.setdefault(key(text), text)) != text), None)
