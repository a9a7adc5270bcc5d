"""Work on large arrays in portions, so that what is in memory besides them stays small.

Files are memory-mapped: their pages are read when they are used, and dropped when memory is scarce. A copy is made only
where values or their order change, in memory or, if it would take more than half of what is free, in a mapped
temporary file.
"""

import math
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fedsim import host_memory
from fedsim.errors import DataError

PORTION_BYTES = 2**24
MAX_SHARE = 0.5  # of the free memory, for a copy
ROUNDING_MARGIN = 2**-51  # exceeds the rounding error of a difference of two floats in [0, 1], per example
ALIGNMENT = 64  # bytes; a CPU device shares arrays that start at a multiple, instead of copying them


def portions(array: np.ndarray) -> Iterator[slice]:
    """Consecutive slices of the first axis, of about 16 MiB each."""
    length = max(1, PORTION_BYTES // max(1, array.itemsize * math.prod(array.shape[1:])))
    return (slice(start, min(start + length, len(array))) for start in range(0, len(array), length))


def floor_fraction(number: int, fraction: float) -> int:
    """`fraction` of `number`, rounded down as in LEAF, but robust to float rounding such as 1 - 0.9 < 0.1."""
    return math.floor(number * (fraction + ROUNDING_MARGIN))


def empty(shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """An array for a copy. Raises `DataError` if neither memory nor the folder of temporary files has room for it."""
    dtype = np.dtype(dtype)
    num_bytes = math.prod(shape) * dtype.itemsize
    if num_bytes > PORTION_BYTES and num_bytes > MAX_SHARE * host_memory.free_bytes():
        return _empty_in_file(shape, dtype, num_bytes)
    buffer = np.empty(num_bytes + ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    return buffer[start : start + num_bytes].view(dtype).reshape(shape)


def _empty_in_file(shape: tuple[int, ...], dtype: np.dtype, num_bytes: int) -> np.ndarray:
    try:
        with tempfile.TemporaryFile() as file:
            file.truncate(num_bytes)
            if hasattr(os, "posix_fallocate"):  # otherwise a full disk kills the process later
                os.posix_fallocate(file.fileno(), 0, num_bytes)
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:
        raise DataError(
            f"data.name: examples that are reordered or converted must fit into memory or {tempfile.gettempdir()}, "
            f"got {num_bytes / 2**30:.1f} GiB ({error.strerror}); set TMPDIR to a larger folder, or store the examples "
            "sorted by client, as float32 or integers"
        ) from None


def take(array: np.ndarray, positions: np.ndarray | slice) -> np.ndarray:
    """The elements of `array` [M, ...] at `positions`: a copy, but a view for a slice."""
    if isinstance(positions, slice):
        return array[positions]
    copy = empty((len(positions), *array.shape[1:]), array.dtype)
    for portion in portions(copy):
        copy[portion] = array[positions[portion]]
    return copy


def sorting(ids: np.ndarray) -> np.ndarray | slice:
    """The positions that sort `ids` [M], equal ones in their order; a slice of all if they are sorted."""
    is_sorted = bool(np.all(ids[1:] >= ids[:-1]))
    return slice(None) if is_sorted else np.argsort(ids, kind="stable")


def convert(array: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """`array` with this type: a copy if it has another one."""
    if array.dtype == dtype:
        return array
    if array.ndim == 0:
        return array.astype(dtype)
    copy = empty(array.shape, dtype)
    for portion in portions(array):
        copy[portion] = array[portion]
    return copy


def all_finite(array: np.ndarray) -> bool:
    """Whether all numbers of `array` are finite."""
    return array.dtype.kind != "f" or _all(np.isfinite, array)


def is_whole(array: np.ndarray) -> bool:
    """Whether all numbers of `array` are whole."""
    return array.dtype.kind != "f" or _all(lambda part: part == np.rint(part), array)


def _all(check: Callable[[np.ndarray], np.ndarray], array: np.ndarray) -> bool:
    array = np.atleast_1d(array)
    return all(bool(np.all(check(array[portion]))) for portion in portions(array))


def value_range(array: np.ndarray) -> tuple[Any, Any]:
    """The smallest and the largest of the numbers in `array`; 0 and 0 if there are none."""
    array = np.atleast_1d(array)
    parts = [array[portion] for portion in portions(array)] if array.size else []
    lows, highs = ([bound(part).item() for part in parts] for bound in (np.min, np.max))
    return min(lows, default=0), max(highs, default=0)


class Spool:
    """Parts of an array [M, ...], such as the records of a file, whose number is known only at the end.

    They are one after another in a temporary file, and have one shape and type.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (`array` closes it)
        self._length = 0
        self.shape: tuple[int, ...] | None = None
        """Shape of an element; None before the first part."""
        self.dtype: np.dtype | None = None
        """Type; None before the first part."""

    def append(self, part: np.ndarray) -> None:
        """Appends `part` [m, ...]. Raises `DataError` if the disk is full."""
        if self.shape is None:
            self.shape, self.dtype = part.shape[1:], part.dtype
        assert (part.shape[1:], part.dtype) == (self.shape, self.dtype)
        try:
            for portion in portions(part):
                self._file.write(np.ascontiguousarray(part[portion]).data)
        except OSError as error:
            raise DataError(
                f"{tempfile.gettempdir()}: must have room for the decoded examples, got: {error.strerror}; set TMPDIR "
                "to a larger folder"
            ) from None
        self._length += len(part)

    def array(self) -> np.ndarray:
        """All parts [M, ...], memory-mapped; ends the spool."""
        assert self.shape is not None, "a spool needs a part"
        assert self.dtype is not None
        shape = (self._length, *self.shape)
        with self._file:
            self._file.flush()
            return np.empty(shape, self.dtype) if 0 in shape else np.memmap(self._file, self.dtype, "r", shape=shape)
