"""A case: an input in one of many forms, with the truth that it was made of, or with a fault.

Without a fault, what fedsim reads must be equal to the truth; with one, it must be refused in one line.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.core.types import FederatedDataset
from fedsim.datasets import arrays
from fedsim.errors import FedsimError

HAS_DATASETS = importlib.util.find_spec("datasets") is not None

WORDS = np.asarray(["ant", "bee", "cat", "dog", "Éa", "3", " x", "007"])
SITES = np.asarray(["north", "Süd", "0", "00", "x y", "z"])
SIDE = 6


@dataclass
class Truth:
    """Examples: x [M, *feature] as models see it, y [M] and the clients, owner [M]."""

    x: np.ndarray
    y: np.ndarray
    owner: np.ndarray


@dataclass
class Case:
    """How examples are written and read, and what is wrong with them; an empty `fault` is none."""

    form: str
    fault: str
    read: Callable[[], Any]
    parts: list[Truth]
    """The training examples and, if there are two, the test examples."""
    has_clients: bool

    def run(self) -> str:
        """ "equal" or "refused". Raises `AssertionError` if the case is wrong."""
        try:
            data = self.read()
            data = data if isinstance(data, FederatedDataset) else arrays.federate(data, 0.2, 0)
        except FedsimError as error:
            message = str(error)
            assert self.fault, f"refused: {message}"
            assert 10 < len(message) < 700, message
            assert "\n" not in message, message
            return "refused"
        assert not self.fault, "not refused"
        check_examples(self.parts, self.has_clients, data)
        return "equal"


def check_examples(parts: list[Truth], has_clients: bool, data: FederatedDataset) -> None:
    """Compares the examples of each client, in any order; training and test examples unless fedsim splits them."""
    is_split = len(parts) == 1
    scale = 255 if data.train.x.dtype == np.uint8 else 1
    owner = np.repeat(np.arange(data.num_clients), data.train.num_examples)
    test_owner = np.zeros(len(data.y_test)) if data.test_clients is None else data.test_clients
    inputs, labels = (data.train.x, data.x_test), (data.train.y, data.y_test)
    rows = zip(inputs, labels, (owner, test_owner), strict=True)
    got = [Truth(np.asarray(x, float) / scale, *more) for x, *more in rows]
    if not has_clients:
        parts = [Truth(part.x, part.y, 0 * part.owner) for part in parts]
    assert has_clients == (data.test_clients is not None)
    actual, expected = (_clients(both, is_split) for both in (got, parts))
    if is_split and has_clients:  # a client with a single example cannot be split
        expected = [rows for rows in expected if len(rows) > 1]
    assert list(map(np.shape, actual)) == list(map(np.shape, expected)), "numbers of clients or examples"
    for rows, true_rows in zip(actual, expected, strict=True):
        np.testing.assert_allclose(rows, true_rows, rtol=1e-4, atol=1e-4)
    if is_split and has_clients:  # each keeps 20 %, rounded up, for the test
        sizes = np.asarray(list(map(len, expected)))
        assert sorted(data.train.num_examples) == np.maximum(1, np.floor(0.8 * sizes + 1e-9)).tolist()


def _clients(parts: list[Truth], is_split: bool) -> list[np.ndarray]:
    """The rows [M_i, 1 + F + 1] of each client, sorted: whether it is for the test, inputs and label."""
    rows = np.concatenate(
        [
            np.column_stack([np.full(len(p.y), i * (not is_split)), p.x.reshape(len(p.x), -1), p.y])
            for i, p in enumerate(parts)
        ]
    ).astype(np.float32)
    owner = np.concatenate([part.owner for part in parts])
    clients = (rows[owner == i] for i in np.unique(owner))
    return sorted((r[np.lexsort(r.T)] for r in clients), key=lambda r: (len(r), *r.ravel()))


def draw_parts(rng: np.random.Generator, kind: str, share: float = 0.6) -> list[Truth]:
    """Training examples and, with probability `share`, test examples, "vector" or pixels that reach 255.

    Every class and every client occurs several times in both.
    """
    num_classes, num_clients = rng.integers(2, 5, 2)
    parts = []
    for num in (40, 16) if rng.random() < share else (40,):
        y, owner = rng.permutation(np.arange(num) % num_classes), rng.permutation(np.arange(num) % num_clients)
        pixels = rng.integers(0, 256, (num, SIDE, SIDE, 3 if kind == "rgb" else 1))
        pixels[:, 0, 0], pixels[:, 0, 1] = 255, 0
        x = np.round(rng.normal(size=(num, 5)), 2) if kind == "vector" else pixels / 255
        parts.append(Truth(x, y, owner))
    return parts


def pick(rng: np.random.Generator, values: Any, share: float = 1.0) -> Any:
    """One of the values, or "" with probability 1 - `share`."""
    values = list(values)
    return values[rng.integers(len(values))] if rng.random() < share else ""
