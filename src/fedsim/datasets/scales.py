"""The scale of inputs: pixels of any type as models expect them, and remarks on what is left as it is."""

import math

import numpy as np

from fedsim.core.types import FederatedDataset
from fedsim.datasets.portions import convert, is_whole, portions, value_range
from fedsim.errors import DataError

PIXELS = {np.dtype(np.uint8), np.dtype(np.uint16)}
MAX_UNSCALED = 16  # a network can train with images of such values as they are
CHANNELS = (1, 3, 4)  # of an image; an axis of that length is not its height if the others are longer
MAX_RMS = 10  # of inputs that networks train with; standardized ones have 1
MAX_DARK = 16  # of 255: images with such pixels have other ranges


def scale_images(name: str, *parts: np.ndarray) -> tuple[np.ndarray, ...]:
    """Images as models expect them: uint8 pixels, or floats near 0. Raises `DataError` if their range is unknown."""
    images = [part for part in parts if part.ndim == 4 and part.size and part.dtype.kind in "iuf"]
    for part in images:
        _, height, *others = part.shape
        if height in CHANNELS and min(others) > max(CHANNELS):
            raise DataError(
                f"{name}: images must be [M, height, width, channels], got {part.shape}; move the channels last by "
                "np.moveaxis(x, 1, -1)"
            )
    types = {part.dtype for part in images}
    if types <= {np.dtype(np.uint8)}:
        return parts
    ranges = np.asarray([value_range(part) for part in images], float)
    low, high = ranges[:, 0].min(), ranges[:, 1].max()
    if not MAX_UNSCALED < high < np.inf or (low < 0 and all(kind.kind == "f" for kind in types)):
        return parts
    if low >= 0 and high <= 255 and all(map(is_whole, images)):
        return tuple(convert(part, np.uint8) for part in parts)
    if types <= PIXELS:
        return tuple(map(scale_pixels, parts))
    raise DataError(
        f"{name}: images must be pixels of 0 to 255 (16 bits: uint16), floats in [0, 1] or standardized, got "
        f"{' and '.join(sorted(map(str, types)))} of {low:.6g} to {high:.6g}; divide them by the largest value that is "
        "possible"
    )


def scale_pixels(images: np.ndarray) -> np.ndarray:
    """Pixels of uint8 or uint16 as floats in [0, 1]; others as they are."""
    if images.dtype not in PIXELS:
        return images
    scaled = convert(images, np.float32)
    scaled /= np.float32(np.iinfo(images.dtype).max)
    return scaled


def scale_notes(dataset: FederatedDataset) -> list[str]:
    """Remarks on numbers that are far from the scale that networks train with, and on labels that are all equal."""
    x, y, notes = np.asarray(dataset.train.x), np.asarray(dataset.train.y), []
    if np.all(y == y[0]):
        notes.append(f"{dataset.name}: all training labels are {y[0]}, so any model learns them")
    if dataset.num_classes == 0:
        notes += _range_notes(f"{dataset.name}: targets", y)
    if dataset.inputs == "text":
        return notes
    has_pixels = x.dtype == np.uint8
    notes += [] if has_pixels else _range_notes(f"{dataset.name}: inputs", x)
    high = value_range(x)[1] if has_pixels or dataset.inputs == "image" else 0
    if 0 < (high if has_pixels else 255 * high) <= MAX_DARK:
        pixels = f"uint8 inputs are divided by 255, but the largest is {high}"
        largest = pixels if has_pixels else f"images are up to {high:.3g} of 1"
        notes.append(f"{dataset.name}: {largest}; divide them by the largest value that is possible, as floats")
    return notes


def _range_notes(what: str, values: np.ndarray) -> list[str]:
    squares = sum(float(np.sum(np.square(values[part], dtype=np.float64))) for part in portions(values))
    if math.sqrt(squares / values.size) <= MAX_RMS:
        return []
    low, high = value_range(values)
    return [f"{what} are {low:.6g} to {high:.6g}, and are used as they are; standardize them, or divide by their range"]
