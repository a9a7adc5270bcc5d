"""Partitions of training examples among clients: IID or natural.

All are `PartitionFunction`s and run on the host. Others are in `dirichlet`, `label_skew` and `feature_noise`.
"""

import numpy as np

from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError


def iid(raw: RawDataset, num_clients: int, rng: np.random.Generator) -> np.ndarray:
    """Client [M] of each training example: equal shares of every class, up to one example.

    Client sizes also differ by at most one. Examples without a single class each are just shuffled and dealt. Raises
    `DataError` if there are fewer examples than clients.

    >>> import numpy as np
    >>> y = np.asarray([0, 1, 0, 1])
    >>> raw = RawDataset("example", np.zeros((4, 2)), y, np.zeros((1, 2)), y[:1], num_classes=2, inputs="vector")
    >>> client_ids = iid(raw, 2, np.random.default_rng(0))
    >>> sorted(zip(client_ids.tolist(), y.tolist()))
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    require_examples(raw, num_clients, 1, "data.num_clients")
    order = rng.permutation(len(raw.y))
    if is_single_label(raw):
        order = order[np.argsort(raw.y[order], kind="stable")]
    client_ids = np.empty(len(raw.y), np.int64)
    client_ids[order] = np.arange(len(raw.y)) % num_clients
    return client_ids


def natural(raw: RawDataset, num_clients: int, rng: np.random.Generator) -> np.ndarray:
    """Client [M] of each training example: the natural clients of the data set, numbered in order of their ids.

    Raises `DataError` if the data set has none.
    """
    if raw.client_ids is None:
        raise DataError(
            f'data.partition: must not be "natural" for {raw.name}, which has no natural clients; use "iid" or '
            '"dirichlet"'
        )
    return np.unique(raw.client_ids, return_inverse=True)[1]


def describe_natural_clients(raw: RawDataset) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """The natural client [T] of each test example, None if there are none; and the names of all clients.

    They are numbered as by `natural`; clients without training data follow the others. No names are known if there are
    no clients, or their names are the numbers themselves.
    """
    if raw.client_ids is None:
        return None, ()
    ids, test_clients = np.unique(raw.client_ids), None
    if raw.test_client_ids is not None:
        ids = np.append(ids, np.setdiff1d(raw.test_client_ids, ids))
        order = np.argsort(ids)
        test_clients = order[np.searchsorted(ids, raw.test_client_ids, sorter=order)].astype(np.int32)
    names = () if raw.client_names is None else tuple(map(str, raw.client_names[ids].tolist()))
    return test_clients, () if names == tuple(map(str, range(len(names)))) else names


def is_single_label(raw: RawDataset) -> bool:
    """Whether each example has one class."""
    return raw.num_classes > 0 and raw.y.ndim == 1


def require_single_label(raw: RawDataset, partition: str) -> None:
    """Raises `DataError` if examples do not have a single class each."""
    if not is_single_label(raw):
        labels = "several labels" if raw.num_classes else "numbers as labels"
        raise DataError(
            f'data.partition: must be "iid" or "quantity" for {raw.name}, whose examples have {labels}, got '
            f'"{partition}"'
        )


def require_clients(num_clients: int) -> None:
    """Raises `DataError` if there are no clients, of which a call from Python may ask for any number."""
    if not isinstance(num_clients, int | np.integer) or num_clients < 1:
        raise DataError(f"data.num_clients: must be an integer >= 1, got {num_clients!r}")


def require_examples(raw: RawDataset, num_clients: int, min_examples: int, keys: str) -> None:
    """Raises `DataError` if there are fewer than `min_examples` per client; its message says to lower `keys`."""
    require_clients(num_clients)
    if num_clients * min_examples > len(raw.y):
        raise DataError(
            f"{keys}: must be lower for the {len(raw.y)} training examples of {raw.name}, got {num_clients} clients "
            f"with at least {min_examples} each"
        )
