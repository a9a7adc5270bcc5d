"""Partitions by a Dirichlet distribution, of classes or of sizes."""

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np

from fedsim.core.settings import POSITIVE, Bounds, OnlyIf
from fedsim.datasets.label_skew import draw_classes
from fedsim.datasets.partition import require_examples, require_single_label
from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError

MAX_DRAWS = 1000


def dirichlet(
    raw: RawDataset,
    num_clients: int,
    rng: np.random.Generator,
    *,
    alpha: Annotated[float, Bounds(**POSITIVE), "concentration; smaller is more heterogeneous"] = 0.5,
    min_examples: Annotated[int, Bounds(ge=1), "smallest number of examples per client"] = 10,
    by: Annotated[
        Literal["class", "client"], "what the proportions are of: a class among clients, or a client of classes"
    ] = "class",
    num_classes: Annotated[
        Annotated[int, Bounds(ge=1)] | None,
        OnlyIf("by", "class"),
        "classes per client, among whose clients each class is split; default: all",
    ] = None,
) -> np.ndarray:
    """Client [M] of each training example: class k is split in proportions from Dir_N(alpha).

    The ARFL paper, "Impact of Data Heterogeneity". Drawn again until every client has `min_examples`. With
    `num_classes`, clients have that many classes, as in `label_quantity`: Li, Lyu, "Convergence Analysis of Sequential
    Federated Learning on Heterogeneous Data", NeurIPS 2023, https://arxiv.org/abs/2311.03154 (extended Dirichlet).
    `by = "client"`: clients of equal size, see `_draw_by_client`. Raises `DataError` after 1,000 draws, or if examples
    do not have a single class each.

    >>> import numpy as np
    >>> y = np.repeat([0, 1], 50)
    >>> raw = RawDataset("example", np.zeros((100, 2)), y, np.zeros((1, 2)), y[:1], num_classes=2, inputs="vector")
    >>> client_ids = dirichlet(raw, 3, np.random.default_rng(0), alpha=0.5, min_examples=20)
    >>> bool(np.bincount(client_ids).min() >= 20)
    True
    """
    require_single_label(raw, "dirichlet")
    require_examples(raw, num_clients, min_examples, "data.num_clients or dirichlet.min_examples")

    if by == "client":
        return _draw_by_client(raw, num_clients, alpha, rng)
    clients_of = {k: np.arange(num_clients) for k in range(raw.num_classes)}
    if num_classes is not None:
        has_class = draw_classes(raw, num_clients, num_classes, rng, "dirichlet")
        clients_of = dict(zip(np.unique(raw.y), map(np.flatnonzero, has_class.T), strict=True))

    def draw() -> np.ndarray:
        client_ids = np.empty(len(raw.y), np.int64)
        for k, clients in clients_of.items():
            members = rng.permutation(np.flatnonzero(raw.y == k))
            client_ids[members] = clients[_draw_clients(len(members), len(clients), alpha, rng)]
        return client_ids

    return _draw_until(draw, raw, num_clients, alpha, min_examples, "dirichlet")


def _draw_by_client(raw: RawDataset, num_clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """Client [M] of each training example: client sizes are equal, up to one, and class shares from Dir(alpha p).

    Hsu, Qi, Brown: "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
    2019, https://arxiv.org/abs/1909.06335. p are the class shares of `raw`. Examples are drawn without replacement; a
    client continues with the other classes when one is used up, and with all that are left when all of its own are.
    """
    classes, left = np.unique(raw.y, return_counts=True)
    prior, num_examples = left / len(raw.y), np.zeros((num_clients, len(classes)), np.int64)
    for client, members in enumerate(np.array_split(raw.y, num_clients)):
        shares = rng.dirichlet(alpha * prior)
        while missing := len(members) - num_examples[client].sum():
            weights = shares * (left > 0)
            weights = weights if weights.sum() > 0 else left.astype(float)
            drawn = np.minimum(rng.multinomial(missing, weights / weights.sum()), left)
            num_examples[client] += drawn
            left -= drawn
    client_ids = np.empty(len(raw.y), np.int64)
    for k, sizes in zip(classes, num_examples.T, strict=True):
        client_ids[rng.permutation(np.flatnonzero(raw.y == k))] = np.repeat(np.arange(num_clients), sizes)
    return client_ids


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
