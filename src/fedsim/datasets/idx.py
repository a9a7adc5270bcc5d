"""The IDX format of MNIST's files.

Two zero bytes, a byte for the type (8: unsigned bytes), one for the number of axes, a big-endian int32 for the length
of each axis, then the values.
"""

import math
import struct
from pathlib import Path

import numpy as np

from fedsim.datasets.archives import Files, read_file
from fedsim.errors import DataError

UNSIGNED_BYTE = 8


def decode(content: bytes) -> np.ndarray:
    """The uint8 array in `content`. Raises `ValueError` if it is not an IDX file of bytes, or truncated."""
    if len(content) < 4 or content[:2] != b"\0\0":
        raise ValueError("not an IDX file")
    dtype, num_axes = content[2:4]
    start = 4 + 4 * num_axes
    if dtype != UNSIGNED_BYTE or len(content) < start:
        raise ValueError("truncated IDX file, or not of bytes")
    shape = struct.unpack(f">{num_axes}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise ValueError(
            f"truncated or altered: must have {math.prod(shape)} bytes for {shape}, got {len(content) - start}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_labeled_images(
    source: Path, files: Files, images_name: str, labels_name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Images [M, 28, 28, 1] uint8 and labels [M] int32 from two `files` of `source`, which may be gzipped.

    Raises `DataError` if a file is missing or broken, or the shapes differ.
    """
    images, labels = (_read_array(source, files, name) for name in (images_name, labels_name))
    if images.shape[1:] != (28, 28) or labels.ndim != 1:
        raise DataError(
            f"{source}: must have images [M, 28, 28] and labels [M], got {images.shape} in {images_name} and "
            f"{labels.shape} in {labels_name}"
        )
    if len(images) != len(labels):
        raise DataError(f"{source}: {len(images)} images in {images_name}, but {len(labels)} labels in {labels_name}")
    return images[..., None], labels.astype(np.int32)


def _read_array(source: Path, files: Files, name: str) -> np.ndarray:
    file_name, content = read_file(source, files, (name, f"{name}.gz"), f"{name}, gzipped or not")
    try:
        return decode(content)
    except ValueError as error:
        raise DataError(f"{source}: {file_name} is broken: {error}") from None
