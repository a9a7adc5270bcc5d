"""Data in LEAF's format: a folder with train/ and test/, each with JSON files, plain or gzipped.

S. Caldas et al.: "LEAF: A Benchmark for Federated Settings", 2018, https://arxiv.org/abs/1812.01097

A file is {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}. The lengths of the
arrays are what counts. `num_samples` must agree; for texts LEAF writes it before it drops windows, so it may be more.
"""

import gzip
import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from fedsim.datasets.natural import ClientExamples, gather
from fedsim.datasets.raw import Inputs, RawDataset
from fedsim.datasets.text import encode
from fedsim.errors import ConfigError, DataError


def leaf(seed: int, *, path: Annotated[str, "a folder in LEAF's format, with train/ and test/"] = "") -> RawDataset:
    """The examples of the folder at `path`, as by `read_folder`."""
    del seed
    if not path:
        raise ConfigError("leaf.path: which folder? One in LEAF's format, with train/ and test/")
    return read_folder(Path(path).expanduser())


def read_folder(folder: Path) -> RawDataset:
    """The examples under `folder`, each with its user as client; the clients are in order of their names.

    x is an image [M, s, s, 1] where inputs are vectors of s * s numbers (uint8 if they are all multiples of 1/255), a
    vector where they are others, and characters [M, T] (int8, positions in LEAF's alphabet) where they are texts.
    Raises `DataError` that names the file where one is missing, broken or cut short.
    """
    train, test = (list(read(folder / part)) for part in ("train", "test"))
    first, *others = {_kind(x) for _, x, _ in (*train, *test)}
    if others:
        raise DataError(f"{folder}: some inputs are of kind {first}, others {others[0]}; they must be alike")
    return gather("leaf", train, test, inputs=first)


def _kind(x: np.ndarray) -> Inputs:
    """What the inputs that `_inputs` made are; only texts become int8."""
    return "text" if x.dtype == np.int8 else "image" if x.ndim == 4 else "vector"


def read(folder: Path) -> Iterator[ClientExamples]:
    """Every user with examples, of all files in `folder`, in order of the files' names."""
    paths = sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")])
    if not paths:
        raise DataError(
            f"{folder}: no .json or .json.gz file; a folder in LEAF's format has train/ and test/ with them"
        )
    seen: dict[str, Path] = {}
    for path in paths:
        for user, x, y in _read_file(path):
            if user in seen:
                raise DataError(f"{path}: has user {user} again, who is in {seen[user].name} already")
            seen[user] = path
            yield user, x, y
    if not seen:
        raise DataError(f"{folder}: no user has examples")


def _read_file(path: Path) -> list[ClientExamples]:
    """Every user of a file who has examples."""
    import msgspec

    try:
        raw = path.read_bytes()
        content = msgspec.json.decode(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        users, user_data = content["users"], content["user_data"]
        numbers = content.get("num_samples", [len(user_data[user]["y"]) for user in users])
        if sorted(users) != sorted(user_data) or len(users) != len(numbers):
            raise ValueError("users, num_samples and user_data are not of the same users")
        examples = []
        for user, number in zip(users, numbers, strict=True):
            x, y = user_data[user]["x"], user_data[user]["y"]
            is_text = bool(x) and isinstance(x[0], str)
            if len(x) != len(y) or not (len(y) == number or (is_text and len(y) < number)):
                raise ValueError(f"user {user} has {len(x)} inputs and {len(y)} labels, but num_samples {number}")
            if y:
                examples.append((user, _inputs(x), _labels(y)))
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise DataError(f"{path}: broken: {error}") from None
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        reason = error if isinstance(error, ValueError) else repr(error)
        raise DataError(f"{path}: not in LEAF's format: {reason}") from None
    return examples


def _inputs(values: list[Any]) -> np.ndarray:
    if isinstance(values[0], str):
        return np.stack([encode(text) for text in values])
    x = np.asarray(values, np.float32)
    steps = np.round(255 * x)
    if x.min() >= 0 and x.max() <= 1 and np.abs(255 * x - steps).max() < 1e-3:
        x = steps.astype(np.uint8)
    side = math.isqrt(x.shape[1]) if x.ndim == 2 else 0
    return x.reshape(-1, side, side, 1) if side and side * side == x.shape[1] else x


def _labels(values: Sequence[Any]) -> np.ndarray:
    return np.asarray([_label(value) for value in values], np.int32)


def _label(value: Any) -> int:
    if isinstance(value, str):
        if len(value) != 1:
            raise ValueError(f"the label {value!r} is no single character")
        return int(encode(value)[0])
    if value != int(value):
        raise ValueError(f"the label {value} is no class; labels are whole numbers or characters")
    return int(value)
