"""Class sizes with a long tail.

Cui, Jia, Lin, Song, Belongie: "Class-Balanced Loss Based on Effective Number of Samples", CVPR 2019,
https://arxiv.org/abs/1901.05555: n_k = n mu^k. Karimireddy, He, Jaggi (ICLR 2022) use it with mu = 0.5.
"""

import numpy as np

from fedsim.datasets.partition import is_single_label
from fedsim.datasets.portions import floor_fraction
from fedsim.datasets.raw import RawDataset, select_examples
from fedsim.errors import DataError


def make_long_tail(raw: RawDataset, decay: float, rng: np.random.Generator) -> RawDataset:
    """`raw` with floor(`decay`^k n) of the n examples of class k, drawn at random, for training and for testing.

    Raises `DataError` if examples do not have a single class each, or none is left for training.
    """
    if not is_single_label(raw):
        raise DataError(f"data.long_tail: must be 1 for {raw.name}, whose examples have no single class, got {decay:g}")
    train, test = (_draw(y, raw.num_classes, decay, rng) for y in (raw.y, raw.y_test))
    if len(train) == 0:
        raise DataError(f"data.long_tail: must be larger for the {len(raw.y)} examples of {raw.name}, got {decay:g}")
    return select_examples(raw, train, test)


def _draw(y: np.ndarray, num_classes: int, decay: float, rng: np.random.Generator) -> np.ndarray:
    """The positions, in their order, of the examples that are kept."""
    members = [rng.permutation(np.flatnonzero(y == k)) for k in range(num_classes)]
    return np.sort(np.concatenate([part[: floor_fraction(len(part), decay**k)] for k, part in enumerate(members)]))
