"""Builds a `FederatedDataset` from a `RawDataset` and a partition of its training examples."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedsim.core.types import ClientData, FederatedDataset
from fedsim.datasets.portions import all_finite, convert, sorting, take
from fedsim.datasets.raw import Partition, RawDataset
from fedsim.errors import DataError

MAX_EXAMPLES = 2**31 - 1  # offsets, and sums of sizes on a device, are int32
MIN_UNSEEN_FRACTION, MAX_SHOWN_CLASSES = 0.01, 5


def make_federated_dataset(
    raw: RawDataset,
    partition: np.ndarray | Partition,
    test_client_ids: np.ndarray | None = None,
    client_names: tuple[str, ...] = (),
    num_clients: int | None = None,
) -> FederatedDataset:
    """`raw` with its training examples given to clients; examples keep their order within a client.

    Examples that are sorted by client are not copied.

    `partition` holds the client [M] of each training example, 0 to N - 1, `test_client_ids` [T] that of each test
    example; `client_names` are as in `FederatedDataset`. Raises `DataError` if `partition` is not such an array, a
    client has no examples, N is not the `num_clients` that are given, inputs of a `Partition` differ in shape or type
    from those of `raw`, its `examples` are no positions in `raw`, or there are more examples than int32 can count.
    """
    examples = None
    if isinstance(partition, Partition):
        x = raw.x if partition.x is None else _check_inputs(raw, np.asarray(partition.x))
        examples = None if partition.examples is None else _check_positions(raw, np.asarray(partition.examples))
        raw, partition = replace(raw, x=x), partition.client_ids
    num_train = len(raw.y if examples is None else examples)
    for part, num_examples in (("training", num_train), ("test", len(raw.y_test))):
        if num_examples > MAX_EXAMPLES:
            raise DataError(
                f"{raw.name}: must have at most {MAX_EXAMPLES:,} {part} examples, got {num_examples:,}; use "
                "data.num_train and data.num_test or, for natural clients, data.sample_fraction"
            )
    try:
        client_ids = np.asarray(partition)
    except ValueError:  # a list for each client
        client_ids = np.asarray(partition, dtype=object)
    if client_ids.shape != (num_train,) or client_ids.dtype.kind not in "iu" or client_ids.min(initial=0) < 0:
        raise DataError(
            f"data.partition: must give a client >= 0 for each of the {num_train} examples of {raw.name}, not the "
            f"examples of each client, got {client_ids.dtype} {client_ids.shape}"
        )
    sizes = np.bincount(client_ids.astype(np.intp, copy=False))  # which refuses uint64
    if len(empty := np.flatnonzero(sizes == 0)):
        raise DataError(f"data.partition: must give every client examples of {raw.name}, got none for {empty[0]}")
    if num_clients not in (None, len(sizes)):
        raise DataError(f"data.partition: must have data.num_clients = {num_clients} clients, got {len(sizes)}")
    order = sorting(client_ids)
    order = order if examples is None else examples[order]
    dtype = np.int32 if raw.num_classes else np.float32
    train: dict[str, Any] = {
        "x": take(raw.x, order),
        "y": convert(take(raw.y, order), dtype),
        "offsets": np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32),
        "num_examples": sizes.astype(np.int32),
        "corrupted": np.zeros(len(sizes), bool),
    }
    data = ClientData(**train), raw.x_test, convert(raw.y_test, dtype), raw.num_classes, raw.inputs, test_client_ids
    classes = () if raw.label_names is None else tuple(map(str, raw.label_names))
    about: dict[str, Any] = {"notes": raw.notes, "are_windows": raw.are_windows}
    return FederatedDataset(raw.name, *data, client_names=client_names, label_names=classes, **about)


def to_raw(dataset: FederatedDataset) -> RawDataset:
    """The examples of `dataset`, whose clients are natural clients. They are not copied."""
    train = dataset.train
    x, y, num_examples = (np.asarray(array) for array in (train.x, train.y, train.num_examples))
    client_ids = np.repeat(np.arange(dataset.num_clients, dtype=np.int32), num_examples)
    labels = dataset.num_classes, dataset.inputs
    test = dataset.x_test, dataset.y_test
    clients = dataset.client_names or tuple(map(str, range(max(dataset.num_clients, dataset.num_test_clients))))
    names = np.asarray(clients), np.asarray(dataset.label_names) if dataset.label_names else None
    about = dataset.notes, dataset.are_windows
    return RawDataset(dataset.name, x, y, *test, *labels, client_ids, dataset.test_clients, *names, *about)


def _check_inputs(raw: RawDataset, x: np.ndarray) -> np.ndarray:
    if x.shape != raw.x.shape or x.dtype != raw.x.dtype:
        raise DataError(
            f"data.partition: inputs must be {raw.x.dtype} {raw.x.shape} as in {raw.name}, got {x.dtype} {x.shape}"
        )
    if not all_finite(x):
        raise DataError(f"data.partition: inputs must be finite, got NaN or infinity ({raw.name})")
    return x


def _check_positions(raw: RawDataset, examples: np.ndarray) -> np.ndarray:
    if examples.dtype.kind not in "iu" or examples.ndim != 1 or np.any((examples < 0) | (examples >= len(raw.y))):
        raise DataError(
            f"data.partition: examples must be positions from 0 to {len(raw.y) - 1} of those of {raw.name}, got "
            f"{examples.dtype} {examples.shape}"
        )
    return examples


def unseen_notes(dataset: FederatedDataset) -> Iterator[str]:
    """Remarks if 1 % of the test labels, or any test clients, which may be misspelled, have no training data."""
    is_unseen = ~np.isin(dataset.y_test, dataset.train.y) if dataset.num_classes else np.zeros(1, bool)
    if (share := is_unseen.mean()) >= MIN_UNSEEN_FRACTION:
        classes, names = np.unique(dataset.y_test[is_unseen]), dataset.label_names or range(dataset.num_classes)
        texts = [str(names[number]) for number in classes[:MAX_SHOWN_CLASSES]]
        shown = ", ".join(text if text.strip() else repr(text) for text in texts)
        shown += " ..." * (len(classes) > MAX_SHOWN_CLASSES)
        yield f"{dataset.name}: {100 * share:.3g} % of the test labels are classes that no client trains on: {shown}"
    if unseen := 0 if dataset.test_clients is None else int(np.sum(dataset.test_clients >= dataset.num_clients)):
        of_all = f"{unseen:,} of {len(dataset.y_test):,} test examples belong to clients without training examples"
        yield f"{dataset.name}: {of_all}; check test_client_ids if that is not meant"
