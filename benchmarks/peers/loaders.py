"""The loaders of FedJAX and pfl-research, timed by `cohorts.py`; each runs in the peer's own environment.

Prints one JSON line with the seconds that each cohort took. The cohorts of the first call are compared with the file.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import exchange
import numpy as np

Cohort = Iterator[tuple[np.ndarray, np.ndarray]]  # the images and labels of each client

DATABASE = "clients.sqlite"


def main() -> None:
    """Loads cohorts, compares the first ones with the file, and times the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a population written by cohorts.py")
    parser.add_argument("--loader", choices=LOADERS, required=True)
    parser.add_argument("--calls", type=int, required=True, help="timed calls")
    options = parser.parse_args()
    x, y, cohorts = (np.load(options.folder / f"{name}.npy", mmap_mode="r") for name in ("x", "y", "cohorts"))
    x, (rounds, cohort_size) = x.reshape(*y.shape, *x.shape[1:]), cohorts.shape[1:]
    clients = itertools.chain.from_iterable(itertools.cycle(cohorts.reshape(-1, cohort_size).tolist()))
    next_cohort = LOADERS[options.loader](options.folder, x, y, clients, cohort_size)

    def load_rounds() -> None:
        for _ in range(rounds):
            for _client in next_cohort():
                pass

    for cohort in cohorts[0]:
        for client, (images, labels) in zip(cohort, next_cohort(), strict=True):
            np.testing.assert_array_equal(images, x[client])
            np.testing.assert_array_equal(labels, y[client])
    seconds = exchange.time_calls(load_rounds, rounds, options.calls)
    package = options.loader.split("_")[0]
    exchange.print_line(options.loader, 0, seconds, {package: version(package)})


def fedjax(
    folder: Path, x: np.ndarray, y: np.ndarray, clients: Iterator[int], cohort_size: int
) -> Callable[[], Cohort]:
    """FedJAX's `SQLiteFederatedData`; the database is written by its own builder if it is missing."""
    from fedjax.core import sqlite_federated_data as sqlite

    path, name = folder / DATABASE, lambda client: client.to_bytes(4, "big")
    if not path.exists():
        with sqlite.SQLiteFederatedDataBuilder(str(path)) as builder:
            builder.add_many((name(i), {"x": np.array(x[i]), "y": np.array(y[i])}) for i in range(len(x)))
    data = sqlite.SQLiteFederatedData.new(str(path))

    def next_cohort() -> Cohort:
        ids = map(name, itertools.islice(clients, cohort_size))
        return ((client.raw_examples["x"], client.raw_examples["y"]) for _, client in data.get_clients(ids))

    return next_cohort


def pfl(folder: Path, x: np.ndarray, y: np.ndarray, clients: Iterator[int], cohort_size: int) -> Callable[[], Cohort]:
    """pfl-research's `FederatedDataset`, which reads a client from memory-mapped files when it is asked for."""
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset

    data = FederatedDataset(lambda client: Dataset((np.array(x[client]), np.array(y[client]))), clients.__next__)
    return lambda: (dataset.raw_data for dataset, _ in data.get_cohort(cohort_size))


def pfl_workers(
    folder: Path, x: np.ndarray, y: np.ndarray, clients: Iterator[int], cohort_size: int
) -> Callable[[], Cohort]:
    """pfl-research's `PyTorchFederatedDataset` with two worker processes, which read ahead from the same files."""
    import pfl.model.pytorch  # noqa: F401  (selects PyTorch as pfl's framework)
    import torch
    from pfl.data.pytorch import PyTorchFederatedDataset

    class Clients(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(x)

        def __getitem__(self, client: int) -> tuple[np.ndarray, np.ndarray]:
            return np.array(x[client]), np.array(y[client])

    data = PyTorchFederatedDataset(Clients(), clients.__next__, num_workers=2, multiprocessing_context="fork")
    return lambda: (tuple(map(np.asarray, dataset.raw_data)) for dataset, _ in data.get_cohort(cohort_size))


LOADERS = {"fedjax": fedjax, "pfl": pfl, "pfl_workers": pfl_workers}

if __name__ == "__main__":
    main()
