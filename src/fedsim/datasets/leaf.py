"""Data in LEAF's format: a folder with train/ and test/, each with JSON files, plain or gzipped.

S. Caldas et al.: "LEAF: A Benchmark for Federated Settings", 2018, https://arxiv.org/abs/1812.01097

A file is {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}. `num_samples` must be
the lengths of the arrays; for texts it may be larger, because LEAF writes it before it drops windows.
"""

import gzip
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from fedsim.core.types import InputKind
from fedsim.datasets.natural_clients import ClientExamples, concatenate_clients
from fedsim.datasets.raw import RawDataset
from fedsim.datasets.text import ALPHABET, encode
from fedsim.errors import ConfigError, DataError, expand_user, reason

FILE_NAME = re.compile(r"\.(bmp|gif|jpe?g|npy|png|tiff?|webp)$", re.IGNORECASE)  # as in LEAF's CelebA


def leaf(seed: int, *, path: Annotated[str, "a folder in LEAF's format, with train/ and test/"] = "") -> RawDataset:
    """The examples in the folder at `path`, see `read_folder`. Raises `ConfigError` if `path` is empty."""
    if not path:
        raise ConfigError('leaf.path: must name a folder in LEAF\'s format, with train/ and test/, got ""')
    return read_folder(expand_user(path))


def read_folder(folder: Path) -> RawDataset:
    """The examples in `folder`; users are clients, in the order of their names.

    Vectors of s * s numbers become images [M, s, s, 1] (uint8 if all are multiples of 1/255), other vectors stay, and
    texts become characters [M, T] (int8, positions in LEAF's alphabet). Raises `DataError` if a file is missing, broken
    or truncated.
    """
    train, test = (read(folder / part) for part in ("train", "test"))
    first = next(train)
    names, kind = np.asarray([*ALPHABET]), _kind(first[1])
    num_classes = len(names) if kind == "text" else None
    raw = concatenate_clients("leaf", chain([first], train), test, inputs=kind, num_classes=num_classes)
    return replace(raw, label_names=names) if kind == "text" else raw


def _kind(x: np.ndarray) -> InputKind:
    """Kind of the inputs `x` from `_convert_inputs`; only texts are int8."""
    return "text" if x.dtype == np.int8 else "image" if x.ndim == 4 else "vector"


def read(folder: Path) -> Iterator[ClientExamples]:
    """Each user with examples, of all files in `folder`, in the order of file names. Raises as `read_folder`."""
    paths = sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")])
    if not paths:
        raise DataError(f"{folder}: no .json or .json.gz file; LEAF's format has them in train/ and test/")
    seen: dict[str, Path] = {}
    for path in paths:
        for user, x, y in _read_file(path):
            if user in seen:
                raise DataError(f"{path}: repeats user {user} of {seen[user].name}")
            seen[user] = path
            yield user, x, y
    if not seen:
        raise DataError(f"{folder}: no user has examples")


def _read_file(path: Path) -> Iterator[ClientExamples]:
    """Each user with examples in the file, decoded one user at a time."""
    import msgspec

    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        content = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        users, sizes = (msgspec.json.decode(content.get(key, b"null")) for key in ("users", "num_samples"))
        user_data = msgspec.json.decode(content["user_data"], type=dict[str, msgspec.Raw])
        if sorted(users) != sorted(user_data) or (sizes is not None and len(users) != len(sizes)):
            raise ValueError("users, num_samples and user_data must have the same users")
        for i, user in enumerate(users):
            data = msgspec.json.decode(user_data[user])
            x, y = data["x"], data["y"]
            num_samples = len(y) if sizes is None else sizes[i]
            is_text = bool(x) and isinstance(x[0], str)
            if len(x) != len(y) or not (len(y) == num_samples or (is_text and len(y) < num_samples)):
                raise ValueError(f"user {user} has {len(x)} inputs and {len(y)} labels, but num_samples {num_samples}")
            if y:
                try:
                    inputs, labels = _convert_inputs(x), [_convert_label(label, is_text) for label in y]
                except (TypeError, ValueError) as error:
                    raise ValueError(f"user {user}: {error}") from None
                yield user, inputs, np.asarray(labels, np.int32)
    except msgspec.ValidationError as error:
        raise DataError(f"{path}: not in LEAF's format: {error}") from None
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise DataError(f"{path}: broken: {reason(error)}") from None
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        what = error if isinstance(error, ValueError) else repr(error)
        raise DataError(f"{path}: not in LEAF's format: {what}") from None


def _convert_inputs(values: list[Any]) -> np.ndarray:
    if isinstance(values[0], str):
        if all(isinstance(text, str) and FILE_NAME.search(text) for text in values):
            raise ValueError(
                f"inputs must be numbers or texts, got file names, such as {values[0]!r}; store the pixels"
            )
        return np.stack([encode(text) for text in values])
    try:
        x = np.asarray(values, np.float32)
    except ValueError as error:
        raise ValueError(f"inputs must be numbers of one shape, or one text each ({error})") from None
    steps = np.round(255 * x)
    if x.min() >= 0 and x.max() <= 1 and np.abs(255 * x - steps).max() < 1e-3:
        x = steps.astype(np.uint8)
    side = math.isqrt(x.shape[1]) if x.ndim == 2 else 0
    return x.reshape(-1, side, side, 1) if side and side * side == x.shape[1] else x


def _convert_label(value: Any, is_text: bool) -> int:
    if is_text:
        if not isinstance(value, str):
            raise ValueError(f"texts must have the next character as label, got {value!r}")
        if len(value) != 1:
            raise ValueError(f"labels must be single characters, got {value!r}")
        return int(encode(value)[0])
    is_digits = isinstance(value, str) and value.isdecimal()
    if not (is_digits or (isinstance(value, int | float) and value == int(value))):
        raise ValueError(f"labels must be integers, or characters that follow a text, got {value!r}")
    return int(value)
