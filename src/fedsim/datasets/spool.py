"""Arrays that come part by part, such as the records of a file, and whose number is known only at the end."""

import tempfile

import numpy as np

from fedsim.datasets.portions import portions
from fedsim.errors import DataError


class Spool:
    """Parts of an array [M, ...], one after another in a temporary file; all have one shape and type."""

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
