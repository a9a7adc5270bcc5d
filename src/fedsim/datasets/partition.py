"""Partitions of training examples among clients: IID, by a Dirichlet distribution, or natural.

All are `PartitionFunction`s and run on the host. Others are in `label_skew` and `feature_noise`.
"""

from collections.abc import Callable
from typing import Annotated

import numpy as np

from fedsim.core.settings import POSITIVE, Bounds
from fedsim.datasets.portions import renumber
from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError

MAX_DRAWS = 1000


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


def dirichlet(
    raw: RawDataset,
    num_clients: int,
    rng: np.random.Generator,
    *,
    alpha: Annotated[float, Bounds(**POSITIVE), "concentration; smaller is more heterogeneous"] = 0.5,
    min_examples: Annotated[int, Bounds(ge=1), "smallest number of examples per client"] = 10,
) -> np.ndarray:
    """Client [M] of each training example: class k is split in proportions from Dir_N(alpha).

    The ARFL paper, "Impact of Data Heterogeneity". Drawn again until every client has `min_examples`. Raises
    `DataError` after 1,000 draws, or if examples do not have a single class each.

    >>> import numpy as np
    >>> y = np.repeat([0, 1], 50)
    >>> raw = RawDataset("example", np.zeros((100, 2)), y, np.zeros((1, 2)), y[:1], num_classes=2, inputs="vector")
    >>> client_ids = dirichlet(raw, 3, np.random.default_rng(0), alpha=0.5, min_examples=20)
    >>> bool(np.bincount(client_ids).min() >= 20)
    True
    """
    require_single_label(raw, "dirichlet")
    require_examples(raw, num_clients, min_examples, "data.num_clients or dirichlet.min_examples")

    def draw() -> np.ndarray:
        client_ids = np.empty(len(raw.y), np.int64)
        for k in range(raw.num_classes):
            members = rng.permutation(np.flatnonzero(raw.y == k))
            client_ids[members] = _draw_clients(len(members), num_clients, alpha, rng)
        return client_ids

    return _draw_until(draw, raw, num_clients, alpha, min_examples, "dirichlet")


def quantity(
    raw: RawDataset,
    num_clients: int,
    rng: np.random.Generator,
    *,
    alpha: Annotated[float, Bounds(**POSITIVE), "concentration of the sizes; smaller is less even"] = 0.5,
    min_examples: Annotated[int, Bounds(ge=1), "smallest number of examples per client"] = 10,
) -> np.ndarray:
    """Client [M] of each training example: shuffled examples are split in proportions from Dir_N(alpha).

    Li, Diao, Chen, He: "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE 2022,
    https://arxiv.org/abs/2102.02079 (quantity skew). Drawn again until every client has `min_examples`. Raises
    `DataError` after 1,000 draws.
    """
    require_examples(raw, num_clients, min_examples, "data.num_clients or quantity.min_examples")
    order = rng.permutation(len(raw.y))

    def draw() -> np.ndarray:
        client_ids = np.empty(len(raw.y), np.int64)
        client_ids[order] = _draw_clients(len(order), num_clients, alpha, rng)
        return client_ids

    return _draw_until(draw, raw, num_clients, alpha, min_examples, "quantity")


def _draw_clients(num_examples: int, num_clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """The client [num_examples] of each example, sorted, in proportions from Dir_N(alpha)."""
    bounds = np.round(np.cumsum(rng.dirichlet(np.full(num_clients, alpha)))[:-1] * num_examples)
    return np.searchsorted(bounds, np.arange(num_examples), side="right")


def _draw_until(
    draw: Callable[[], np.ndarray], raw: RawDataset, num_clients: int, alpha: float, min_examples: int, section: str
) -> np.ndarray:
    """The first draw in which every client has `min_examples`. Raises `DataError` after `MAX_DRAWS`."""
    for _ in range(MAX_DRAWS):
        client_ids = draw()
        if np.min(np.bincount(client_ids, minlength=num_clients)) >= min_examples:
            return client_ids
    raise DataError(
        f"{section}.alpha: must be large enough to give each of {num_clients} clients {min_examples} examples of "
        f"{raw.name} in one of {MAX_DRAWS} draws, got {alpha:g}; raise it, or lower {section}.min_examples or "
        "data.num_clients"
    )


def natural(raw: RawDataset, num_clients: int, rng: np.random.Generator) -> np.ndarray:
    """Client [M] of each training example: the natural clients of the data set, numbered in order of their ids.

    Raises `DataError` if the data set has none.
    """
    del num_clients, rng
    return natural_clients(raw)


def natural_clients(raw: RawDataset) -> np.ndarray:
    """The natural client [M] of each training example, numbered in order of the ids. Raises `DataError` if none."""
    if raw.client_ids is None:
        raise DataError(
            f'data.partition: must not be "natural" for {raw.name}, which has no natural clients; use "iid" or '
            '"dirichlet"'
        )
    return renumber(raw.client_ids)[1]


def natural_test_clients(raw: RawDataset) -> np.ndarray | None:
    """The natural client [T] of each test example, numbered as by `natural_clients`; None if there are none.

    Clients without training data follow the others.
    """
    if raw.client_ids is None or raw.test_client_ids is None:
        return None
    training_ids, (ids, inverse) = renumber(raw.client_ids)[0], renumber(raw.test_client_ids)
    position, is_test_only = np.searchsorted(training_ids, ids), ~np.isin(ids, training_ids)
    numbers = np.where(is_test_only, len(training_ids) + np.cumsum(is_test_only) - 1, position)
    return numbers.astype(np.int32)[inverse]


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


def require_examples(raw: RawDataset, num_clients: int, min_examples: int, keys: str) -> None:
    """Raises `DataError` if there are fewer than `min_examples` per client; its message says to lower `keys`."""
    if num_clients * min_examples > len(raw.y):
        raise DataError(
            f"{keys}: must be lower for the {len(raw.y)} training examples of {raw.name}, got {num_clients} clients "
            f"with at least {min_examples} each"
        )
