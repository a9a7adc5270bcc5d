"""The scale of inputs: pixels of any type as models expect them, and remarks on what is left as it is."""

import math

import numpy as np

from fedsim.core.types import FederatedDataset
from fedsim.datasets.portions import convert, portions, value_range
from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError

MAX_UNSCALED = 16  # a network can train with images of such values as they are
CHANNELS = (1, 3, 4)  # of an image; an axis of that length is not its height if the others are longer
MAX_CHANNELS = 4
MAX_RMS = 10  # of inputs that networks train with; standardized ones have 1
MAX_DARK = 16  # of 255: images with such pixels have other ranges


def scale_images(raw: RawDataset, *parts: np.ndarray) -> list[np.ndarray]:
    """Images as models expect them: uint8 pixels, or floats near 0. Raises `DataError` if their range is unknown."""
    images = [part for part in parts if part.ndim > 2 and part.size and part.dtype.kind in "iuf"]
    is_image = raw.inputs == "image"  # others of that many axes may be images, too
    for part in images:
        height, *others = part.shape[1:]
        is_last = not is_image or part.ndim != 4 or height not in CHANNELS or min(others) <= MAX_CHANNELS
        axes = "images must be [M, height, width, channels]"
        if not is_last:
            raise DataError(f"{raw.name}: {axes}, got {part.shape}; move the channels last by np.moveaxis(x, 1, -1)")
    if all(part.dtype == np.uint8 for part in images):
        return list(parts)
    ranges = [value_range(part) for part in images]
    low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    if not MAX_UNSCALED < high < np.inf or (low < 0 and all(part.dtype.kind == "f" for part in images)):
        return list(parts)
    if low >= 0 and high <= 255 and all(map(_is_whole, images)):
        return [convert(part, np.uint8) for part in parts]
    if not is_image:
        return list(parts)
    if all(part.dtype in (np.uint8, np.uint16) for part in images):
        return [scale_pixels(part) for part in parts]
    types = " and ".join(sorted({str(part.dtype) for part in images}))
    raise DataError(
        f"{raw.name}: images must be pixels of 0 to 255 (16 bits: uint16), floats in [0, 1] or standardized, got "
        f"{types} of {low:.6g} to {high:.6g}; divide them by the largest value that is possible"
    )


def scale_pixels(images: np.ndarray) -> np.ndarray:
    """Pixels of uint8 or uint16 as floats in [0, 1]; others as they are."""
    if images.dtype not in (np.uint8, np.uint16):
        return images
    scaled = convert(images, np.float32)
    scaled /= np.float32(np.iinfo(images.dtype).max)
    return scaled


def _is_whole(values: np.ndarray) -> bool:
    return values.dtype.kind != "f" or all(bool(np.all(np.mod(values[part], 1) == 0)) for part in portions(values))


def scale_notes(dataset: FederatedDataset) -> list[str]:
    """Remarks on numbers that are far from the scale that networks train with, and on labels that are all equal."""
    x, y, notes = np.asarray(dataset.train.x), np.asarray(dataset.train.y), []
    if np.all(y == y[0]):
        notes.append(f"{dataset.name}: all training labels are {y[0]}, so any model learns them")
    if dataset.num_classes == 0:
        notes += _range_notes(f"{dataset.name}: targets", y)
    if dataset.inputs == "text":
        return notes
    if x.dtype != np.uint8:
        return notes + _range_notes(f"{dataset.name}: inputs", x)
    high = value_range(x)[1]
    if 0 < high <= MAX_DARK:
        notes.append(
            f"{dataset.name}: uint8 inputs are divided by 255, but the largest is {high}; divide them by the largest "
            "value that is possible, as floats"
        )
    return notes


def _range_notes(what: str, values: np.ndarray) -> list[str]:
    squares = sum(float(np.sum(np.square(values[part], dtype=np.float64))) for part in portions(values))
    if math.sqrt(squares / values.size) <= MAX_RMS:
        return []
    low, high = value_range(values)
    return [f"{what} are {low:.6g} to {high:.6g}, and are used as they are; standardize them, or divide by their range"]
