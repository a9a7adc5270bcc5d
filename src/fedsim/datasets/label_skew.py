"""Partitions in which each client has few classes."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from fedsim.core.settings import Bounds
from fedsim.datasets.partition import require_clients, require_examples, require_single_label
from fedsim.datasets.portions import floor_fraction
from fedsim.datasets.raw import Partition, RawDataset
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
    require_clients(num_clients)
    has_class = draw_classes(raw, num_clients, num_classes, rng, "label_quantity")
    keys = "label_quantity.num_classes or data.num_clients"
    return _split_classes(raw, has_class, rng, keys)


def extreme(
    raw: RawDataset,
    num_clients: int,
    rng: np.random.Generator,
    *,
    num_sybils: Annotated[int, Bounds(ge=0), "the last clients, which all hold the same examples instead"] = 0,
    sybil_class: Annotated[
        Annotated[int, Bounds(ge=0)] | Literal["iid"],
        "all examples of this class; iid: one of N shards of all examples",
    ] = 0,
) -> np.ndarray | Partition:
    """Client [M] of each training example: client i has only class i mod C, split equally among a class's clients.

    With fewer clients than classes it has all examples of the classes i, i + N, i + 2N and so on. N does not count the
    sybils, the experiment of Fung, Yoon, Beschastnikh: "The Limitations of Federated Learning in Sybil Settings", RAID
    2020, https://arxiv.org/abs/1808.04866. Raises `DataError` if examples do not have a single class each, a class has
    fewer examples than clients, or that of the sybils has none.
    """
    require_single_label(raw, "extreme")
    require_clients(num_clients)
    classes, num_others = np.unique(raw.y), _count_others(num_clients, num_sybils, "extreme.num_sybils")
    if num_sybils and sybil_class not in ("iid", *classes):
        raise DataError(f"extreme.sybil_class: must be a class with examples of {raw.name}, got {sybil_class}")
    client_ids = _split_classes(raw, _assign_classes(len(classes), num_others), rng, "data.num_clients")
    shard = rng.permutation(len(raw.y))[: len(raw.y) // num_others]
    held = shard if sybil_class == "iid" else np.flatnonzero(raw.y == sybil_class)
    return _add_clients(client_ids, num_others, [held] * num_sybils)


def similarity(
    raw: RawDataset,
    num_clients: int,
    rng: np.random.Generator,
    *,
    gamma: Annotated[float, Bounds(ge=0, le=1), "share of the examples that are IID"] = 0.5,
    iid_clients: Annotated[int, Bounds(ge=0), "the last clients, which hold IID shards of all examples instead"] = 0,
) -> np.ndarray | Partition:
    """Client [M] of each training example: a share `gamma` is shuffled, the rest sorted by class; both are cut in N.

    Karimireddy et al.: "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020,
    https://arxiv.org/abs/1910.06378, Section 7 (s %). N does not count the `iid_clients`: as in the program of
    Karimireddy, He, Jaggi: "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing", ICLR 2022,
    https://arxiv.org/abs/2006.09365, the i-th of them holds shard i mod N of N equal shards of all examples, which
    other clients hold as well. Raises `DataError` if examples do not have a single class each, or are too few.
    """
    require_single_label(raw, "similarity")
    require_clients(num_clients)
    num_others = _count_others(num_clients, iid_clients, "similarity.iid_clients")
    require_examples(raw, num_others, 1, "data.num_clients")
    order = rng.permutation(len(raw.y))
    shuffled, rest = np.split(order, [floor_fraction(len(order), gamma)])
    if max(len(shuffled), len(rest)) < num_others:  # the last client would get none of either
        raise DataError(
            f"similarity.gamma: must be nearer to 0 or 1 for the {len(order)} training examples of {raw.name} and "
            f"{num_others} clients, got {gamma:g}; or lower data.num_clients"
        )
    client_ids = np.empty(len(order), np.int64)
    for part in (shuffled, rest[np.argsort(raw.y[rest], kind="stable")]):
        for client, members in enumerate(np.array_split(part, num_others)):
            client_ids[members] = client
    shards = np.array_split(rng.permutation(len(order)), num_others)
    return _add_clients(client_ids, num_others, [shards[i % num_others] for i in range(iid_clients)])


def draw_classes(
    raw: RawDataset, num_clients: int, num_classes: int, rng: np.random.Generator, section: str
) -> np.ndarray:
    """Which `num_classes` of the C classes that occur each client has, [N, C] bool; each class has a client.

    Raises `DataError` if the key `num_classes` of `section` is too large or too small for that.
    """
    num_all = len(np.unique(raw.y))
    if num_classes > num_all:
        raise DataError(
            f"{section}.num_classes: must be at most the {num_all} classes of {raw.name}, got {num_classes}"
        )
    if num_clients * num_classes < num_all:
        raise DataError(
            f"{section}.num_classes: must be large enough for {num_clients} clients to cover the {num_all} "
            f"classes of {raw.name}, got {num_classes}; raise it or data.num_clients"
        )
    has_class = _assign_classes(num_all, num_clients)
    for row in has_class:
        row[rng.choice(np.flatnonzero(~row), num_classes - row.sum(), replace=False)] = True
    return has_class


def _count_others(num_clients: int, num_last: int, key: str) -> int:
    """The number of clients besides the `num_last`. Raises `DataError` if there are none."""
    if num_last >= num_clients:
        raise DataError(f"{key}: must be less than data.num_clients = {num_clients}, got {num_last}")
    return num_clients - num_last


def _add_clients(client_ids: np.ndarray, num_clients: int, held: Sequence[np.ndarray]) -> np.ndarray | Partition:
    """The partition `client_ids` [M] and further clients, each of which holds the examples at the positions `held`."""
    if not held:
        return client_ids
    more_ids = np.repeat(num_clients + np.arange(len(held)), [len(positions) for positions in held])
    examples = np.concatenate([np.arange(len(client_ids)), *held])
    return Partition(np.concatenate([client_ids, more_ids]), examples=examples)


def _assign_classes(num_classes: int, num_clients: int) -> np.ndarray:
    """Which classes each client has, [N, C] bool: one after another; of both, the fewer start again from the first."""
    has_class, numbers = np.zeros((num_clients, num_classes), bool), np.arange(max(num_clients, num_classes))
    has_class[numbers % num_clients, numbers % num_classes] = True
    return has_class


def _split_classes(raw: RawDataset, has_class: np.ndarray, rng: np.random.Generator, keys: str) -> np.ndarray:
    """Client [M] of each training example, if `has_class` [N, C] says which of the classes that occur clients have.

    Raises `DataError`, with advice to lower `keys`, if a class has fewer examples than clients.
    """
    client_ids = np.empty(len(raw.y), np.int64)
    for k, is_of in zip(np.unique(raw.y), has_class.T, strict=True):
        members, clients = rng.permutation(np.flatnonzero(raw.y == k)), np.flatnonzero(is_of)
        if len(members) < len(clients):
            raise DataError(
                f"{keys}: must be lower for the {len(members)} examples of class {k} of {raw.name}, got {len(clients)} "
                "clients with that class"
            )
        client_ids[members] = clients[np.arange(len(members)) % len(clients)]
    return client_ids
