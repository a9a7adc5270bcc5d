"""Partitions in which each client has few classes."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from fedsim.core.settings import Bounds
from fedsim.datasets.partition import require_examples, require_single_label
from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError


def shards(
    raw: RawDataset,
    num_clients: int,
    rng: np.random.Generator,
    *,
    num_shards: Annotated[int, Bounds(ge=1), "shards per client"] = 2,
) -> np.ndarray:
    """Client [M] of each training example: each client gets `num_shards` equal shards of the examples sorted by class.

    McMahan, Moore, Ramage, Hampson, Aguera y Arcas: "Communication-Efficient Learning of Deep Networks from
    Decentralized Data", AISTATS 2017, https://arxiv.org/abs/1602.05629, Section 3, with two shards per client. Sizes of
    the N x `num_shards` shards differ by at most one. Raises `DataError` if examples do not have a single class each,
    or are fewer than the shards.
    """
    require_single_label(raw, "shards")
    require_examples(raw, num_clients, num_shards, "data.num_clients or shards.num_shards")
    order = rng.permutation(len(raw.y))
    order = order[np.argsort(raw.y[order], kind="stable")]
    client_of_shard = rng.permutation(num_clients * num_shards) % num_clients
    client_ids = np.empty(len(raw.y), np.int64)
    for client, members in zip(client_of_shard, np.array_split(order, len(client_of_shard)), strict=True):
        client_ids[members] = client
    return client_ids


def label_quantity(
    raw: RawDataset,
    num_clients: int,
    rng: np.random.Generator,
    *,
    num_classes: Annotated[int, Bounds(ge=1), "classes per client"] = 2,
) -> np.ndarray:
    """Client [M] of each training example: a client has `num_classes` classes, split equally among a class's clients.

    "#C = k" of Li, Diao, Chen, He: "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE 2022,
    https://arxiv.org/abs/2102.02079. As in the authors' program, client i has class i mod C and random others. With
    fewer clients than classes it also has i + N, i + 2N and so on, so that no class is left out. Raises `DataError` if
    there are too few classes, clients or examples for that.
    """
    require_single_label(raw, "label_quantity")
    classes = np.unique(raw.y)
    if num_classes > len(classes):
        raise DataError(
            f"label_quantity.num_classes: must be at most the {len(classes)} classes of {raw.name}, got {num_classes}"
        )
    if num_clients * num_classes < len(classes):
        raise DataError(
            f"label_quantity.num_classes: must be large enough for {num_clients} clients to cover the {len(classes)} "
            f"classes of {raw.name}, got {num_classes}; raise it or data.num_clients"
        )
    classes_of = []
    for first in _assign_classes(len(classes), num_clients):
        rest = np.setdiff1d(np.arange(len(classes)), first)
        classes_of.append(np.concatenate([first, rng.choice(rest, num_classes - len(first), replace=False)]))
    return _split_classes(raw, classes, classes_of, rng, "label_quantity.num_classes or data.num_clients")


def extreme(raw: RawDataset, num_clients: int, rng: np.random.Generator) -> np.ndarray:
    """Client [M] of each training example: client i has only class i mod C, split equally among a class's clients.

    With fewer clients than classes it has all examples of the classes i, i + N, i + 2N and so on. Raises `DataError` if
    examples do not have a single class each, or a class has fewer examples than clients.
    """
    require_single_label(raw, "extreme")
    classes = np.unique(raw.y)
    return _split_classes(raw, classes, _assign_classes(len(classes), num_clients), rng, "data.num_clients")


def _assign_classes(num_classes: int, num_clients: int) -> list[np.ndarray]:
    """The classes of each client, round-robin; surplus clients start again from the first class."""
    return [np.arange(client % num_classes, num_classes, num_clients) for client in range(num_clients)]


def _split_classes(
    raw: RawDataset, classes: np.ndarray, classes_of: Sequence[np.ndarray], rng: np.random.Generator, keys: str
) -> np.ndarray:
    """Client [M] of each training example, if client i has the classes at the positions `classes_of[i]`.

    Raises `DataError`, with advice to lower `keys`, if a class has fewer examples than clients.
    """
    client_ids = np.empty(len(raw.y), np.int64)
    for position, k in enumerate(classes):
        members = rng.permutation(np.flatnonzero(raw.y == k))
        clients = np.asarray([client for client, positions in enumerate(classes_of) if position in positions])
        if len(members) < len(clients):
            raise DataError(
                f"{keys}: must be lower for the {len(members)} examples of class {k} of {raw.name}, got {len(clients)} "
                "clients with that class"
            )
        client_ids[members] = clients[np.arange(len(members)) % len(clients)]
    return client_ids
