"""Data sets before they are partitioned among clients, and the signatures of what loads and partitions them."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from fedsim.core.types import InputKind
from fedsim.datasets.portions import take


@dataclass(frozen=True, eq=False)
class RawDataset:
    """Training and test examples, with client ids if the examples belong to natural clients."""

    name: str
    """Name of the data set, for messages and records."""
    x: np.ndarray
    """[M, *feature] uint8, other integers or float32. Images are [M, height, width, channels], and models see uint8
    divided by 255. Texts are characters [M, T], integer positions in an alphabet."""
    y: np.ndarray
    """[M] or [M, T], integer classes from 0 to num_classes - 1 or float32 numbers."""
    x_test: np.ndarray
    """[T, *feature]; T is 0 if the data set has no test set."""
    y_test: np.ndarray
    """[T] or [T, ...], as `y`."""
    num_classes: int
    """0 if the targets are numbers."""
    inputs: InputKind
    """Kind of the inputs."""
    client_ids: np.ndarray | None = None
    """[M] int >= 0, the natural client of each training example."""
    test_client_ids: np.ndarray | None = None
    """[T] int >= 0, the natural client of each test example."""
    client_names: np.ndarray | None = None
    """[C] str, the name of each client id."""
    label_names: np.ndarray | None = None
    """[num_classes] str, the name of each class."""
    notes: tuple[str, ...] = ()
    """Remarks for the user about usable but unusual data."""
    are_windows: bool = True
    """Whether texts are windows of longer ones, so that neighbors overlap."""


class Partition(NamedTuple):
    """A partition that also changes the training inputs, or gives examples to several clients or to none."""

    client_ids: np.ndarray
    """[M] int, from 0 to num_clients - 1: the client of each training example; [P] with `examples`."""
    x: np.ndarray | None = None
    """[M, *feature], the training inputs of the clients; the test set does not change. None: those of the data."""
    examples: np.ndarray | None = None
    """[P] int, the positions of the training examples that clients hold, any number of times. None: each once."""


class DatasetFactory(Protocol):
    """Loads a data set (`data.name`). Annotated keyword parameters with defaults are its settings."""

    def __call__(self, seed: int) -> RawDataset:
        """The data set; `seed` draws everything that is random. Raises `DataError` if it cannot be loaded."""


class PartitionFunction(Protocol):
    """Partitions training examples among clients (`data.partition`); settings as in `DatasetFactory`."""

    def __call__(self, raw: RawDataset, num_clients: int, rng: np.random.Generator) -> np.ndarray | Partition:
        """The client [M] of each of the M training examples, an integer from 0 to `num_clients` - 1, or a `Partition`.

        Every client must get an example. Raises `DataError` if `raw` cannot be partitioned.
        """


def select_examples(raw: RawDataset, train: np.ndarray | slice, test: np.ndarray | slice) -> RawDataset:
    """`raw` with its training examples at the positions `train` and its test examples at `test`, in that order.

    Positions copy the examples, slices do not.
    """
    return replace(
        raw,
        x=take(raw.x, train),
        y=take(raw.y, train),
        client_ids=None if raw.client_ids is None else raw.client_ids[train],
        x_test=take(raw.x_test, test),
        y_test=take(raw.y_test, test),
        test_client_ids=None if raw.test_client_ids is None else raw.test_client_ids[test],
    )
