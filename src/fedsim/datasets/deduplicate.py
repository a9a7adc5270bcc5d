"""Removal of repeated inputs, which may occur in both the training and the test set."""

import numpy as np

from fedsim.datasets.raw import RawDataset, select_examples
from fedsim.errors import DataError


def deduplicate(raw: RawDataset) -> RawDataset:
    """`raw` with the first example of each distinct input, training before test, so that no test input is trained on.

    Inputs are equal if all their bytes are, regardless of labels and clients. The order is kept, and clients with only
    repeated inputs disappear. Raises `DataError` if no test example would be left.
    """
    x = np.concatenate([raw.x, raw.x_test])
    rows = np.ascontiguousarray(x).reshape(len(x), -1)
    row_type = np.dtype((np.void, rows.itemsize * rows.shape[1]))
    first = np.sort(np.unique(rows.view(row_type).ravel(), return_index=True)[1])
    if len(first) == len(x):
        return raw
    num_train = len(raw.y)
    train, test = first[first < num_train], first[first >= num_train] - num_train
    if len(raw.y_test) and not len(test):
        raise DataError(f"data.deduplicate: must be false for {raw.name}, all of whose test inputs are training inputs")
    return select_examples(raw, train, test)
