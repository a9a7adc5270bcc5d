"""Random small data sets in every form that fedsim reads from memory or from .npz, LEAF and Hugging Face folders.

A case knows its true pixels or features, class numbers and owners. It writes them in one of many forms that all mean
the same, or with a fault. `check` compares what fedsim reads with the truth. Without a fault it must be equal; with one
it must be refused in one line. Case `seed` is the same in every run.
"""

import traceback
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedsim.core.types import FederatedDataset
from fedsim.datasets import arrays
from fedsim.datasets.raw import RawDataset
from fedsim.errors import FedsimError

NAMES = np.asarray(["ant", "bee", "cat", "dog", "Éa", "3", " x", "007"])
SITES = np.asarray(["north", "Süd", "0", "00", "x y", "z"])
SIDE = 6


@dataclass
class Truth:
    """Examples of one part, sorted in no way."""

    x: np.ndarray
    """[M, *feature] float64, as models see it."""
    y: np.ndarray
    """[M] classes."""
    owner: np.ndarray
    """[M] clients."""


@dataclass
class Case:
    """An input and what is true of it."""

    form: str
    """How it is written, for messages."""
    fault: str
    """What is wrong with it; empty: nothing."""
    read: Callable[[], FederatedDataset | RawDataset]
    train: Truth
    test: Truth | None
    has_clients: bool


def check(case: Case) -> str:
    """What is wrong with how fedsim reads the case; empty: nothing."""
    try:
        data = case.read()
        raw = data if isinstance(data, FederatedDataset) else arrays.federate(data, 0.2, 0)
    except FedsimError as error:
        message = str(error)
        is_clear = 10 < len(message) < 700 and "\n" not in message and "Traceback" not in message
        return "" if case.fault and is_clear else f"refused: {message}"
    except Exception:
        return f"raised: {traceback.format_exc().splitlines()[-1]}"
    if case.fault:
        return "not refused"
    return _differences(case, raw)


def _differences(case: Case, data: FederatedDataset) -> str:
    """Compares examples client by client; without a test set, those of both parts together."""
    x, y = (np.asarray(part, np.float64) for part in (data.train.x, data.train.y))
    scale = 255 if data.train.x.dtype == np.uint8 else 1
    x, x_test = x / scale, np.asarray(data.x_test, np.float64) / scale
    if case.test is None:
        train = _sorted_rows(np.concatenate([x, x_test]), np.concatenate([y, data.y_test]))
        truth = _sorted_rows(case.train.x, case.train.y)
        if case.has_clients:  # each keeps 20 %, rounded up, for the test
            sizes = np.bincount(case.train.owner)
            if sorted(data.train.num_examples) != sorted(np.maximum(1, np.floor(0.8 * sizes + 1e-9))):
                return f"sizes {data.train.num_examples.tolist()}, not 80 % of {sizes.tolist()}"
        return _compare("examples", train, truth)
    wrong = _compare("test", _sorted_rows(x_test, data.y_test), _sorted_rows(case.test.x, case.test.y))
    if wrong or not case.has_clients:
        return wrong or _compare("train", _rows(x, y), _rows(case.train.x, case.train.y))
    bounds = np.cumsum(data.train.num_examples)[:-1]
    clients = [_rows(*part) for part in zip(np.split(x, bounds), np.split(y, bounds), strict=True)]
    owners = [case.train.owner == i for i in np.unique(case.train.owner)]
    truth = [_rows(case.train.x[mine], case.train.y[mine]) for mine in owners]
    if len(clients) != len(truth):
        return f"{len(clients)} clients, not {len(truth)}"
    key = lambda rows: (len(rows), *np.round(rows, 4).ravel())
    pairs = zip(sorted(clients, key=key), sorted(truth, key=key), strict=True)
    return next(filter(None, (_compare("client", *pair) for pair in pairs)), "")


def _rows(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.concatenate([np.reshape(x, (len(x), -1)), np.reshape(y, (len(y), 1))], axis=1).astype(np.float64)


def _sorted_rows(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    rows = _rows(x, y)
    return rows[np.lexsort(np.round(rows, 4).T)]


def _compare(what: str, got: np.ndarray, truth: np.ndarray) -> str:
    if got.shape != truth.shape:
        return f"{what}: shape {got.shape}, not {truth.shape}"
    worst = float(np.max(np.abs(got - truth), initial=0))
    return "" if worst < 2e-3 else f"{what}: differs by {worst:.3g}"


def draw_truth(rng: np.random.Generator, num: int, kind: str, num_classes: int, num_clients: int) -> Truth:
    """Every class and every client occurs several times; pixels reach 255 and are multiples of 1 / 255."""
    y, owner = rng.permutation(np.arange(num) % num_classes), rng.permutation(np.arange(num) % num_clients)
    if kind == "vector":
        return Truth(np.round(rng.normal(size=(num, 5)), 2), y, owner)
    channels = 3 if kind == "rgb" else 1
    pixels = rng.integers(0, 256, (num, SIDE, SIDE, channels))
    pixels[:, 0, 0], pixels[:, 0, 1] = 255, 0
    return Truth(pixels / 255, y, owner)


def draw_parts(rng: np.random.Generator, kind: str) -> tuple[Truth, Truth | None]:
    num_classes, num_clients = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    train = draw_truth(rng, 40, kind, num_classes, num_clients)
    return train, draw_truth(rng, 16, kind, num_classes, num_clients) if rng.random() < 0.6 else None
