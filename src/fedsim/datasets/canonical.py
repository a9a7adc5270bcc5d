"""Checks that every data set passes before it is used."""

from dataclasses import replace
from typing import get_args

import numpy as np

from fedsim.core.types import InputKind
from fedsim.datasets.portions import all_finite, convert, value_range
from fedsim.datasets.raw import RawDataset
from fedsim.errors import DataError


def canonicalize(raw: RawDataset, needs_test: bool = True) -> RawDataset:
    """`raw` as NumPy arrays, with inputs of at most 32 bits, which copies wider ones; nothing else is copied.

    Classes [M, 1], which columns of data frames are, become [M]. Raises `DataError` if arrays do not fit together, or
    have wrong shapes, types, labels or values that are not finite, or if `needs_test` and there is no test set.
    """
    if not isinstance(raw, RawDataset):
        raise DataError(f"data.name: must return a fedsim.datasets.RawDataset, got {type(raw).__name__}")
    _require(raw, raw.inputs in get_args(InputKind), f'inputs must be "image", "text" or "vector", got "{raw.inputs}"')
    _require(raw, raw.num_classes >= 0, f"num_classes must be >= 0 (0: the targets are numbers), got {raw.num_classes}")
    x, x_test = (_to_32_bits(raw, np.asarray(a)) for a in (raw.x, raw.x_test))
    y, y_test = (np.asarray(a) for a in (raw.y, raw.y_test))
    y, y_test = (_squeeze(a) if raw.num_classes else _to_float32(a) for a in (y, y_test))
    ids, test_ids = (None if a is None else np.asarray(a) for a in (raw.client_ids, raw.test_client_ids))
    raw = replace(raw, x=x, y=y, x_test=x_test, y_test=y_test, client_ids=ids, test_client_ids=test_ids)
    _check_part(raw, "training", x, y, ids)
    if needs_test or y_test.size:
        _check_part(raw, "test", x_test, y_test, test_ids)
    for what, train, test in (("inputs", x, x_test), ("labels", y, y_test)):
        shapes = train.shape[1:], test.shape[1:]
        _require(raw, shapes[0] == shapes[1], f"training {what} are {shapes[0]}, but test {what} are {shapes[1]}")
    _require(raw, x.dtype == x_test.dtype, f"training inputs are {x.dtype}, but test inputs are {x_test.dtype}")
    return raw


def _to_float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # values that become infinite are refused later
        return convert(values, np.float32) if values.dtype.kind == "f" and values.itemsize > 4 else values


def _to_32_bits(raw: RawDataset, inputs: np.ndarray) -> np.ndarray:
    """`inputs` as float32 or int32 if they are wider. Raises `DataError` for integers that a device would wrap."""
    if inputs.dtype.kind not in "iu" or inputs.itemsize <= 4:
        return _to_float32(inputs)
    low, high = value_range(inputs)
    is_int32 = low >= -(2**31) and high < 2**31
    _require(raw, is_int32, f"inputs must be integers of 32 bits, got {low} to {high}; convert them to float")
    return convert(inputs, np.int32)


def _squeeze(labels: np.ndarray) -> np.ndarray:
    """`labels` [M, 1] as [M]; others as they are."""
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def _require(raw: RawDataset, condition: object, message: str) -> None:
    if not condition:
        raise DataError(f"{raw.name}: {message}")


def _check_part(raw: RawDataset, part: str, x: np.ndarray, y: np.ndarray, ids: np.ndarray | None) -> None:
    """Raises `DataError` if the training or the test examples are wrong in themselves."""
    has_axes = x.ndim >= 1 and y.ndim in (1, 2) and (ids is None or ids.ndim == 1)
    _require(raw, has_axes, f"{part} inputs must be [M, ...], labels [M] or [M, T] and client ids [M]")
    _require(raw, len(x) == len(y), f"{len(x)} {part} inputs but {len(y)} labels")
    if ids is not None:
        _require(raw, len(ids) == len(y), f"{len(y)} {part} examples but {len(ids)} client ids")
    _require(raw, len(y), f"no {part} examples")
    _require(raw, x.size, f"{part} inputs must have numbers, got shape {x.shape}")
    _require(raw, y.size, "labels must have a length >= 1, got 0")
    _check_numbers(raw, f"{part} inputs", x)
    is_image, is_text = x.ndim == 4, x.ndim == 2 and x.dtype.kind in "iu"
    _require(raw, raw.inputs != "image" or is_image, f"images must be [M, height, width, channels], got {x.shape}")
    _require(raw, raw.inputs != "text" or is_text, f"texts must be integers [M, T], got {x.dtype} {x.shape}")
    if ids is not None:
        is_id = ids.dtype.kind in "iu" and ids.min() >= 0
        _require(raw, is_id, "client ids must be integers >= 0; pass their names as client_names")
    if raw.num_classes:
        _require(raw, y.dtype.kind in "biu", f"{part} labels must be integer classes, got {y.dtype}")
        is_class = y.min() >= 0 and y.max() < raw.num_classes
        _require(raw, is_class, f"{part} labels must be 0 to {raw.num_classes - 1}, got {y.min()} to {y.max()}")
    _check_numbers(raw, f"{part} labels", y)


def _check_numbers(raw: RawDataset, what: str, values: np.ndarray) -> None:
    _require(raw, values.dtype.kind in "biuf", f"{what} must be numbers, got {values.dtype}")
    _require(raw, all_finite(values), f"{what} must be finite, got NaN or infinity")
