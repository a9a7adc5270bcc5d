"""Data in LEAF's format: a folder with train/ and test/, each with JSON files, plain or gzipped.

S. Caldas et al.: "LEAF: A Benchmark for Federated Settings", 2018, https://arxiv.org/abs/1812.01097

A file is {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}. `num_samples` is not
relied upon: LEAF writes it before it drops overlapping windows of text. The lengths of the arrays are what counts.
"""

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError

# The 80 characters of LEAF's Shakespeare, in its order.
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"


def load(folder: Path, name: str = "leaf") -> RawDataset:
    """The examples under `folder`, each with its user as client.

    x is an image [M, s, s, 1] where inputs are vectors of s * s numbers (uint8 if they are all multiples of 1/255), a
    vector where they are others, and characters [M, T] as positions in `LETTERS` where they are texts.
    Raises `DataError` that names the file where one is missing, broken or cut short.
    """
    x, y, users = _read_split(folder / "train")
    x_test, y_test, _ = _read_split(folder / "test")
    if x.dtype != x_test.dtype:  # one split has values between the steps
        x, x_test = _as_float(x), _as_float(x_test)
    is_text = x.ndim == 2 and x.dtype == np.int32
    num_classes = len(LETTERS) if is_text else 1 + int(max(y.max(), y_test.max()))
    return RawDataset(name, x, y, x_test, y_test, num_classes, users)


def _read_split(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y and the user of each example, of all files in `folder`, in order of their names."""
    paths = sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")])
    if not paths:
        raise DataError(
            f"{folder}: no .json or .json.gz file; a folder in LEAF's format has train/ and test/ with them"
        )
    parts = [part for path in paths for part in _read_file(path)]
    if not parts:
        raise DataError(f"{folder}: no user has examples")
    xs, ys, users = zip(*parts, strict=True)
    shapes = {x.shape[1:] for x in xs}
    if len(shapes) > 1:
        raise DataError(f"{folder}: inputs of different shapes: {sorted(map(str, shapes))}")
    x = np.concatenate(xs) if len({x.dtype for x in xs}) == 1 else np.concatenate([_as_float(x) for x in xs])
    return x, np.concatenate(ys), np.concatenate([np.full(len(y), user) for y, user in zip(ys, users, strict=True)])


def _read_file(path: Path) -> list[tuple[np.ndarray, np.ndarray, str]]:
    """(x, y, user) of every user of a file who has examples."""
    import msgspec

    try:
        raw = path.read_bytes()
        content = msgspec.json.decode(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        users, user_data = content["users"], content["user_data"]
        examples = [(_inputs(user_data[u]["x"]), _labels(user_data[u]["y"]), u) for u in users if user_data[u]["y"]]
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise DataError(f"{path}: broken: {error}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not in LEAF's format: {error!r}") from None
    for x, y, user in examples:
        if len(x) != len(y):
            raise DataError(f"{path}: user {user} has {len(x)} inputs but {len(y)} labels")
    return examples


def _inputs(values: list[Any]) -> np.ndarray:
    if isinstance(values[0], str):
        return np.asarray([[LETTERS.index(letter) for letter in text] for text in values], np.int32)
    x = np.asarray(values, np.float32)
    steps = np.round(255 * x)
    if x.min() >= 0 and x.max() <= 1 and np.abs(255 * x - steps).max() < 1e-3:
        x = steps.astype(np.uint8)
    side = math.isqrt(x.shape[1]) if x.ndim == 2 else 0
    return x.reshape(-1, side, side, 1) if side and side * side == x.shape[1] else x


def _labels(values: list[Any]) -> np.ndarray:
    return np.asarray([LETTERS.index(v) if isinstance(v, str) else int(v) for v in values], np.int32)


def _as_float(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) / 255 if x.dtype == np.uint8 else x
