"""Who gets which training example. A partitioner returns the owner [M] of each example; it runs on the host."""

import numpy as np

from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError

MAX_DRAWS = 1000


def iid(raw: RawDataset, num_clients: int, rng: np.random.Generator) -> np.ndarray:
    """Each client gets the same number of examples of each class, and of examples in all, but for one at most."""
    _need(raw, num_clients, 1)
    shuffled = rng.permutation(len(raw.y))
    by_class = shuffled[np.argsort(raw.y[shuffled], kind="stable")]
    owner = np.empty(len(raw.y), np.int64)
    owner[by_class] = np.arange(len(raw.y)) % num_clients  # dealt like cards, class after class
    return owner


def dirichlet(
    raw: RawDataset, num_clients: int, rng: np.random.Generator, alpha: float, min_examples: int
) -> np.ndarray:
    """Class k is divided in proportions drawn from Dir_N(alpha) (the paper, "Impact of Data Heterogeneity").

    Drawn again until every client has `min_examples`; raises `DataError` after 1,000 draws.
    """
    _need(raw, num_clients, min_examples)
    for _ in range(MAX_DRAWS):
        owner = np.empty(len(raw.y), np.int64)
        for k in range(raw.num_classes):
            members = rng.permutation(np.flatnonzero(raw.y == k))
            bounds = np.cumsum(rng.dirichlet(np.full(num_clients, alpha)))[:-1] * len(members)
            owner[members] = np.searchsorted(np.round(bounds), np.arange(len(members)), side="right")
        if np.min(np.bincount(owner, minlength=num_clients)) >= min_examples:
            return owner
    raise DataError(
        f"no Dirichlet({alpha:g}) partition of {raw.name} in {MAX_DRAWS} draws gave each of {num_clients} clients "
        f"{min_examples} examples; raise data.dirichlet_alpha or lower data.min_examples or data.num_clients"
    )


def natural(raw: RawDataset) -> np.ndarray:
    """The clients that the data set itself names, in order of their ids. Raises `DataError` where it names none."""
    if raw.client_ids is None:
        raise DataError(f'{raw.name} has no natural clients; use data.partition = "iid" or "dirichlet"')
    return np.unique(raw.client_ids, return_inverse=True)[1]


def natural_test(raw: RawDataset) -> np.ndarray | None:
    """The client [T] of each test example, numbered as by `natural`; clients without training data come behind them.

    None where test examples belong to nobody.
    """
    if raw.client_ids is None or raw.test_client_ids is None:
        return None
    trained = np.unique(raw.client_ids)
    others = np.setdiff1d(raw.test_client_ids, trained)
    position = {client: i for i, client in enumerate([*trained.tolist(), *others.tolist()])}
    clients, inverse = np.unique(raw.test_client_ids, return_inverse=True)
    return np.asarray([position[client] for client in clients.tolist()], np.int32)[inverse]


def _need(raw: RawDataset, num_clients: int, min_examples: int) -> None:
    if num_clients * min_examples > len(raw.y):
        raise DataError(
            f"{raw.name} has {len(raw.y)} training examples, too few for {min_examples} or more at each of "
            f"{num_clients} clients; lower data.num_clients or data.min_examples"
        )
