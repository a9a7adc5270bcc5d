"""Training examples that are held out from the clients: the server's root data, and validation data."""

from typing import Any

import numpy as np

from fedsim.core.types import Examples
from fedsim.datasets.portions import convert
from fedsim.datasets.raw import RawDataset, select_examples
from fedsim.errors import DataError


def hold_out_root(raw: RawDataset, num_examples: int, rng: np.random.Generator) -> tuple[RawDataset, Examples | None]:
    """`raw` without `num_examples` random training examples, and those examples, or None if `num_examples` is 0.

    Raises `DataError` if no training example would be left.
    """
    if num_examples == 0:
        return raw, None
    if num_examples >= len(raw.y):
        raise DataError(
            f"data.root_examples: must be less than the {len(raw.y)} training examples of {raw.name}, "
            f"got {num_examples}"
        )
    return _hold_out(raw, num_examples, rng.permutation(len(raw.y)))


def hold_out_validation(
    raw: RawDataset, fraction: float, rng: np.random.Generator, is_natural: bool
) -> tuple[RawDataset, Examples | None]:
    """`raw` without a random `fraction` of its training examples, and those examples, or None if `fraction` is 0.

    With `is_natural`, every natural client keeps at least one. Raises `DataError` if that leaves too few examples, or
    if `fraction` of the examples rounds to 0.
    """
    if fraction == 0:
        return raw, None
    order = rng.permutation(len(raw.y))
    num_kept = 1
    if is_natural and raw.client_ids is not None:  # the last example drawn of each client moves to the end
        last = len(order) - 1 - np.unique(raw.client_ids[order[::-1]], return_index=True)[1]
        order, num_kept = np.concatenate([np.delete(order, last), order[last]]), len(last)
    num_examples, largest = round(fraction * len(order)), len(order) - num_kept
    if not 0 < num_examples <= largest:
        raise DataError(
            f"data.validation_fraction: must hold out 1 to {largest} of the {len(order)} training examples of "
            f"{raw.name}, got {fraction:g}, which is {num_examples}"
        )
    return _hold_out(raw, num_examples, order)


def _hold_out(raw: RawDataset, num_examples: int, order: np.ndarray) -> tuple[RawDataset, Examples]:
    """`raw` without the first `num_examples` training examples of `order` [M], and these."""
    held_out, rest = np.sort(order[:num_examples]), np.sort(order[num_examples:])
    y: Any = convert(raw.y[held_out], np.int32 if raw.num_classes else np.float32)
    x: Any = raw.x[held_out]
    return select_examples(raw, rest, slice(None)), Examples(x, y)
