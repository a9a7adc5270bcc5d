"""Partitions of published programs, with their generators and seeds, which are the same in all runs."""

from collections.abc import Callable
from typing import Annotated

import numpy as np

from fedsim import Bounds, RawDataset

MIN_EXAMPLES, MAX_DRAWS = 10, 1000


def niid_iid(raw: RawDataset, num_clients: int, rng: np.random.Generator) -> np.ndarray:
    """Client [M] of each training example: `partition_data`, equal parts of a permutation with seed 42."""
    del rng
    client_ids, order = np.empty(len(raw.y), int), np.random.RandomState(42).permutation(len(raw.y))
    for client, members in enumerate(np.array_split(order, num_clients)):
        client_ids[members] = client
    return client_ids


def niid_dirichlet(
    raw: RawDataset,
    num_clients: int,
    rng: np.random.Generator,
    *,
    alpha: Annotated[float, Bounds(gt=0), "concentration; smaller is more heterogeneous"] = 0.5,
) -> np.ndarray:
    """Client [M] of each training example: `_balanced_dirichlet` with seed 42.

    flwrlabs/flower, baselines/niid_bench/niid_bench/dataset_preparation.py: partition_data_dirichlet, as of the table
    (adap/flower@3e79a99771; later with `default_rng`).
    """
    del rng
    generator = np.random.RandomState(42)
    return _balanced_dirichlet(raw, num_clients, alpha, generator, generator.shuffle)


def lpa_dirichlet(
    raw: RawDataset,
    num_clients: int,
    rng: np.random.Generator,
    *,
    alpha: Annotated[float, Bounds(gt=0), "concentration; smaller is more heterogeneous"] = 1.0,
) -> np.ndarray:
    """Client [M] of each training example: `_balanced_dirichlet` with seed 1, and examples drawn by `rng`.

    pengj97/LPA, ByrdLab/library/partition.py: non_iid_dirichlet.
    """
    return _balanced_dirichlet(raw, num_clients, alpha, np.random.RandomState(1), rng.shuffle)


def _balanced_dirichlet(
    raw: RawDataset,
    num_clients: int,
    alpha: float,
    generator: np.random.RandomState,
    shuffle: Callable[[np.ndarray], None],
) -> np.ndarray:
    """Client [M] of each training example: each class in shares from Dir(alpha), again until all have ten examples.

    A client that has its share of all examples by then gets none of a further class; the other shares are scaled up.
    Raises `ValueError` after 1,000 draws.
    """
    client_ids = np.empty(len(raw.y), int)
    for _ in range(MAX_DRAWS):
        sizes = np.zeros(num_clients, int)
        for k in range(raw.num_classes):
            members = np.flatnonzero(raw.y == k)
            shuffle(members)
            shares = generator.dirichlet(np.full(num_clients, alpha)) * (sizes * num_clients < len(raw.y))
            ends = (np.cumsum(shares / shares.sum()) * len(members)).astype(int)[:-1]
            client_ids[members] = np.searchsorted(ends, np.arange(len(members)), side="right")
            sizes += np.bincount(client_ids[members], minlength=num_clients)
        if sizes.min() >= MIN_EXAMPLES:
            return client_ids
    raise ValueError(f"alpha: must be larger for {num_clients} clients of {MIN_EXAMPLES} examples, got {alpha}")


def niid_classes(
    raw: RawDataset,
    num_clients: int,
    rng: np.random.Generator,
    *,
    num_classes: Annotated[int, Bounds(ge=1), "classes per client"] = 2,
) -> np.ndarray:
    """Client [M] of each training example: client i has class i and others that are drawn, all with seed 42.

    partition_data_label_quantity, in the same file as `niid_dirichlet`'s program. Raises `ValueError` if clients should
    have more classes than there are.
    """
    del rng
    if num_classes > raw.num_classes:
        raise ValueError(f"num_classes: must be at most the {raw.num_classes} of the data, got {num_classes}")
    generator, classes_of = np.random.RandomState(42), []
    for client in range(num_clients):
        classes = [client % raw.num_classes]
        while len(classes) < num_classes:
            drawn = generator.randint(0, raw.num_classes)
            classes += [drawn] if drawn not in classes else []
        classes_of.append(classes)
    client_ids = np.empty(len(raw.y), int)
    for k in range(raw.num_classes):
        members = np.flatnonzero(raw.y == k)
        generator.shuffle(members)
        clients = [client for client, classes in enumerate(classes_of) if k in classes]
        for client, part in zip(clients, np.array_split(members, len(clients)), strict=True):
            client_ids[part] = client
    return client_ids
