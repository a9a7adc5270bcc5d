"""A user's own arrays as a federated data set."""

import numpy as np

from fedsim.datasets.raw import RawDataset, check, divide
from fedsim.types import FederatedDataset


def from_arrays(
    x: np.ndarray,
    y: np.ndarray,
    client_ids: np.ndarray,
    x_test: np.ndarray,
    y_test: np.ndarray,
    *,
    num_classes: int | None = None,
    name: str = "arrays",
) -> FederatedDataset:
    """Examples `x` [M, *feature], `y` [M] of the clients `client_ids` [M] (any sortable names), and a test set.

    `x` is uint8 (pixels; the model sees them in [0, 1]), integer or float. `num_classes` defaults to the largest label
    plus one. Raises `DataError` where the arrays do not fit together.
    """
    x, y, x_test, y_test, client_ids = (np.asarray(a) for a in (x, y, x_test, y_test, client_ids))
    if num_classes is None:
        num_classes = 1 + max((int(a.max()) for a in (y, y_test) if len(a)), default=0)
    x, x_test = (a.astype(np.float32) if a.dtype == np.float64 else a for a in (x, x_test))
    raw = check(RawDataset(name, x, y, x_test, y_test, num_classes, client_ids))
    return divide(raw, np.unique(client_ids, return_inverse=True)[1])
