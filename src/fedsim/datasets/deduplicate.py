"""Removal of repeated inputs, which may occur in both the training and the test set."""

import hashlib

import numpy as np

from fedsim.datasets.portions import portions
from fedsim.datasets.raw import RawDataset, select_examples
from fedsim.errors import DataError

DIGEST_BYTES = 16  # no two of 10^12 inputs share such a digest by chance


def deduplicate(raw: RawDataset) -> RawDataset:
    """`raw` with the first example of each distinct input, training before test, so that no test input is trained on.

    Inputs are equal if all their bytes are, regardless of labels and clients. The order is kept, and clients with only
    repeated inputs disappear. Raises `DataError` if no test example would be left.
    """
    digests = np.concatenate([_digests(raw.x), _digests(raw.x_test)])
    first = np.sort(np.unique(digests, return_index=True)[1])
    if len(first) == len(digests):
        return raw
    num_train = len(raw.y)
    train, test = first[first < num_train], first[first >= num_train] - num_train
    if len(raw.y_test) and not len(test):
        raise DataError(f"data.deduplicate: must be false for {raw.name}, all of whose test inputs are training inputs")
    return select_examples(raw, train, test)


def _digests(x: np.ndarray) -> np.ndarray:
    """A digest [M] of the bytes of each input."""
    digest = lambda row: hashlib.blake2b(row.data, digest_size=DIGEST_BYTES).digest()
    rows = (row for portion in portions(x) for row in np.ascontiguousarray(x[portion]))
    return np.fromiter((digest(row) for row in rows), np.dtype((np.void, DIGEST_BYTES)), len(x))
