"""A case: an input in one of many forms, with the truth that it was made of, or with a fault.

Without a fault, what fedsim reads must be equal to the truth; with one, it must be refused in one line.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedsim.core.types import FederatedDataset
from fedsim.datasets import arrays
from fedsim.errors import FedsimError

WORDS = np.asarray(["ant", "bee", "cat", "dog", "Éa", "3", " x", "007"])
SITES = np.asarray(["north", "Süd", "0", "00", "x y", "z"])
SIDE = 6


@dataclass
class Case:
    """How an input is written and read, and what is wrong with it; an empty `fault` is none."""

    form: str
    fault: str
    read: Callable[[], Any]
    check: Callable[[Any], None]
    """Raises `AssertionError` unless what was read is the truth."""
    error: type[Exception] = FedsimError

    def run(self) -> str:
        """ "equal" or "refused". Raises `AssertionError` if the case is wrong."""
        try:
            read = self.read()
        except self.error as error:
            message = str(error)
            assert self.fault, f"refused: {message}"
            assert 10 < len(message) < 700, message
            assert "\n" not in message, message
            return "refused"
        assert not self.fault, "not refused"
        self.check(read)
        return "equal"


@dataclass
class Truth:
    """Examples: x [M, *feature] as models see it, y [M] and the clients, owner [M]."""

    x: np.ndarray
    y: np.ndarray
    owner: np.ndarray

    def groups(self, is_test: bool) -> dict[int, np.ndarray]:
        """The rows [is_test, *x, y] of each client."""
        part = np.full((len(self.y), 1), is_test)
        rows = np.concatenate([part, np.reshape(self.x, (len(self.x), -1)), np.reshape(self.y, (-1, 1))], axis=1)
        return {int(i): rows[self.owner == i].astype(np.float32) for i in np.unique(self.owner)}


def data_case(form: str, fault: str, read: Callable[[], Any], parts: list[Truth], has_clients: bool) -> Case:
    """A case of the training examples and, if there are two `parts`, test examples."""


    def read_split() -> FederatedDataset:
        data = read()
        return data if isinstance(data, FederatedDataset) else arrays.federate(data, 0.2, 0)

    return Case(form, fault, read_split, partial(check_examples, parts, has_clients))


def check_examples(parts: list[Truth], has_clients: bool, data: FederatedDataset) -> None:
    """Compares the examples of each client, in any order; training and test examples unless fedsim splits them."""
    owner, test_owner = np.repeat(np.arange(data.num_clients), data.train.num_examples), data.test_clients
    if not has_clients:
        assert data.num_clients == 1
        parts = [Truth(part.x, part.y, 0 * part.owner) for part in parts]
    if test_owner is None:  # a client of their own
        test_owner = np.full(len(data.y_test), 0 if len(parts) == 1 else -1)
        parts = [*parts[:1], *(Truth(part.x, part.y, np.full(len(part.y), -1)) for part in parts[1:])]
    scale = 255 if data.train.x.dtype == np.uint8 else 1
    x, x_test = (np.asarray(inputs, np.float64) / scale for inputs in (data.train.x, data.x_test))
    got = [Truth(x, np.asarray(data.train.y), owner), Truth(x_test, np.asarray(data.y_test), test_owner)]
    actual, expected = (_sorted_clients(both, len(parts) == 1) for both in (got, parts))
    assert list(map(np.shape, actual)) == list(map(np.shape, expected)), "numbers of clients or examples"
    for rows, true_rows in zip(actual, expected, strict=True):
        np.testing.assert_allclose(rows, true_rows, rtol=1e-4, atol=1e-4)
    if len(parts) == 1 and has_clients:  # each keeps 20 %, rounded up, for the test
        sizes = np.unique(parts[0].owner, return_counts=True)[1]
        assert sorted(data.train.num_examples) == sorted(np.maximum(1, np.floor(0.8 * sizes + 1e-9)))


def _sorted_clients(parts: list[Truth], is_merged: bool) -> list[np.ndarray]:
    clients: dict[int, list[np.ndarray]] = {}
    for is_test, part in enumerate(parts):
        for i, rows in part.groups(bool(is_test) and not is_merged).items():
            clients.setdefault(i, []).append(rows)
    joined = [np.concatenate(rows) for rows in clients.values()]
    return sorted((rows[np.lexsort(rows.T)] for rows in joined), key=lambda rows: (len(rows), *rows.ravel()))


def draw_truth(rng: np.random.Generator, num: int, kind: str, num_classes: int, num_clients: int) -> Truth:
    """Every class and every client occurs several times; pixels reach 255 and are multiples of 1 / 255."""
    y, owner = rng.permutation(np.arange(num) % num_classes), rng.permutation(np.arange(num) % num_clients)
    if kind == "vector":
        return Truth(np.round(rng.normal(size=(num, 5)), 2), y, owner)
    pixels = rng.integers(0, 256, (num, SIDE, SIDE, 3 if kind == "rgb" else 1))
    pixels[:, 0, 0], pixels[:, 0, 1] = 255, 0
    return Truth(pixels / 255, y, owner)


def draw_parts(rng: np.random.Generator, kind: str, share: float = 0.6) -> list[Truth]:
    """Training examples and, with probability `share`, test examples of the same classes and clients."""
    numbers = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    return [draw_truth(rng, num, kind, *numbers) for num in ((40, 16) if rng.random() < share else (40,))]


def pick(rng: np.random.Generator, values: Any, share: float = 1.0) -> Any:
    """One of the values, or "" with probability 1 - `share`."""
    values = list(values)
    return values[rng.integers(len(values))] if rng.random() < share else ""
