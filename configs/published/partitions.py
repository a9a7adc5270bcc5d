"""Partitions of published programs, with their generators and seeds.

flwrlabs/flower, baselines/niid_bench/niid_bench/dataset_preparation.py as of the table (adap/flower@3e79a99771; later a
`default_rng`). Its seed is 42 in all runs, whatever their own. Examples are drawn in the order of the published files.
"""

from typing import Annotated

import numpy as np

from fedsim import Bounds, RawDataset

SEED, MIN_EXAMPLES = 42, 10


def niid_dirichlet(
    raw: RawDataset,
    num_clients: int,
    rng: np.random.Generator,
    *,
    alpha: Annotated[float, Bounds(gt=0), "concentration; smaller is more heterogeneous"] = 0.5,
) -> np.ndarray:
    """Client [M] of each training example: `partition_data_dirichlet`.

    A client that has its share of all examples by then gets none of a further class; the other shares are scaled up.
    """
    del rng
    generator, sizes = np.random.RandomState(SEED), np.zeros(num_clients, int)
    client_ids = np.empty(len(raw.y), int)
    while sizes.min() < MIN_EXAMPLES:
        sizes[:] = 0
        for k in range(raw.num_classes):
            members = np.flatnonzero(raw.y == k)
            generator.shuffle(members)
            shares = generator.dirichlet(np.full(num_clients, alpha)) * (sizes * num_clients < len(raw.y))
            ends = (np.cumsum(shares / shares.sum()) * len(members)).astype(int)[:-1]
            client_ids[members] = np.searchsorted(ends, np.arange(len(members)), side="right")
            sizes += np.bincount(client_ids[members], minlength=num_clients)
    return client_ids


def niid_classes(
    raw: RawDataset,
    num_clients: int,
    rng: np.random.Generator,
    *,
    num_classes: Annotated[int, Bounds(ge=1), "classes per client"] = 2,
) -> np.ndarray:
    """Client [M] of each training example: `partition_data_label_quantity`, client i has class i and drawn others."""
    del rng
    generator, classes_of = np.random.RandomState(SEED), []
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
