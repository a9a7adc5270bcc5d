"""Checks that every data set passes before it is used."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np

from fedsim.core.types import InputKind
from fedsim.datasets.portions import all_finite, convert, value_range
from fedsim.datasets.raw import RawDataset
from fedsim.datasets.scales import scale_images
from fedsim.errors import DataError, reason

MAX_DENSE_CLASSES, MAX_SPARSITY = 100, 10  # more classes than that must be at most 10 times the classes that occur
MAX_CLASSES = 2**24


def canonicalize(raw: RawDataset, needs_test: bool = True) -> RawDataset:
    """`raw` as NumPy arrays, with inputs of at most 32 bits, which copies wider ones; little else is copied.

    Classes become int32, and [M, 1], which columns of data frames are, [M]. Images of whole numbers from 0 to 255
    become uint8, and other uint16 images floats in [0, 1]. Raises `DataError` if arrays do not fit together, or have
    wrong shapes, types, labels, masked values or values that are not finite, if a client or a class has no name, or if
    `needs_test` and there is no test set.
    """
    if not isinstance(raw, RawDataset):
        raise DataError(f"data.name: must return a fedsim.datasets.RawDataset, got {type(raw).__name__}")
    _require(raw, raw.inputs in get_args(InputKind), f'inputs must be "image", "text" or "vector", got "{raw.inputs}"')
    is_integer = isinstance(raw.num_classes, int | np.integer)
    _require(raw, is_integer, f"num_classes must be an integer, got {raw.num_classes!r}")
    bounds = f"0 (the targets are numbers) to {MAX_CLASSES:,}"
    _require(raw, 0 <= raw.num_classes <= MAX_CLASSES, f"num_classes must be {bounds}, got {raw.num_classes:,}")
    x, x_test = (as_array(raw.name, "inputs", a) for a in (raw.x, raw.x_test))
    if raw.inputs == "image":
        x, x_test = scale_images(raw.name, x, x_test)
    x, x_test = (_to_32_bits(raw, a) for a in (x, x_test))
    y, y_test = (as_array(raw.name, "labels", a) for a in (raw.y, raw.y_test))
    y, y_test = (squeeze(a) if raw.num_classes else _to_float32(a) for a in (y, y_test))
    ids, test_ids = (
        None if a is None else as_array(raw.name, "client ids", a) for a in (raw.client_ids, raw.test_client_ids)
    )
    raw = replace(raw, x=x, y=y, x_test=x_test, y_test=y_test, client_ids=ids, test_client_ids=test_ids)
    _check_part(raw, "training", x, y, ids)
    if needs_test or x_test.size or y_test.size or (test_ids is not None and test_ids.size):
        _check_part(raw, "test", x_test, y_test, test_ids)
    for what, train, test in (("inputs", x, x_test), ("labels", y, y_test)):
        shapes = train.shape[1:], test.shape[1:]
        _require(raw, shapes[0] == shapes[1], f"training {what} are {shapes[0]}, but test {what} are {shapes[1]}")
    _require(raw, x.dtype == x_test.dtype, f"training inputs are {x.dtype}, but test inputs are {x_test.dtype}")
    if raw.num_classes:  # of one type, as parts of both may be joined
        raw = replace(raw, y=convert(y, np.int32), y_test=convert(y_test, np.int32))
    return _with_names(raw)


def _with_names(raw: RawDataset) -> RawDataset:
    """`raw` with ids of one type, and names as arrays. Raises `DataError` if a client or a class has no name."""
    ids, test_ids = (None if a is None else convert(a, np.int64) for a in (raw.client_ids, raw.test_client_ids))
    clients, classes = (None if a is None else np.asarray(a) for a in (raw.client_names, raw.label_names))
    num_ids = 1 + max((int(a.max(initial=-1)) for a in (ids, test_ids) if a is not None), default=-1)
    for key, names, least in (("client_names", clients, num_ids), ("label_names", classes, raw.num_classes)):
        is_named = names is None or (names.ndim == 1 and len({*map(str, names[:least])}) == least)
        _require(raw, is_named, f"{key} must be {least} different names, got {names!r:.100}")
    return replace(raw, client_ids=ids, test_client_ids=test_ids, client_names=clients, label_names=classes)


def as_array(name: str, what: str, values: Any) -> np.ndarray:
    """`values` as an array in the byte order of this machine. Raises `DataError` if they are none, or some are masked.

    bfloat16 and other short floats that NumPy lacks become float32.
    """
    if any(map(np.ma.is_masked, values if isinstance(values, list | tuple) else (values,))):
        raise DataError(
            f"{name}: {what} must have no masked values; leave these examples out, or fill them by .filled(value)"
        )
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O" and (array.ndim == 0 or isinstance(next(array.flat, None), dict | tuple)):
            raise TypeError("not numbers")
    except Exception as error:  # of many types: other libraries convert their own arrays
        raise DataError(
            f"{name}: {what} must be one array, got {type(values).__name__} ({reason(error)}); if these "
            "are examples, stack them, such as by x, y = map(np.stack, zip(*pairs))"
        ) from None
    if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.type is not np.void:
        return convert(array, np.float32)
    return array if array.dtype.isnative else convert(array, array.dtype.newbyteorder("="))


def count_classes(name: str, labels: np.ndarray, remedy: str = "renumber them") -> int:
    """The largest of the integer `labels` [M] plus one. Raises `DataError` if most classes do not occur."""
    num_classes = 1 + max(0, int(labels.max(initial=0)))  # negative labels are refused later
    num_distinct = len(np.unique(labels)) if num_classes > MAX_DENSE_CLASSES else num_classes
    if num_classes > MAX_SPARSITY * num_distinct:
        raise DataError(
            f"{name}: labels must be classes numbered from 0, got only {num_distinct} of {num_classes:,} classes; "
            f"{remedy}"
        )
    return num_classes


def _to_float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # values that become infinite are refused later
        return convert(values, np.float32) if values.dtype.kind in "bf" else values


def _to_32_bits(raw: RawDataset, inputs: np.ndarray) -> np.ndarray:
    """`inputs` as float32 or int32 if they are wider. Raises `DataError` for integers that a device would wrap."""
    if raw.inputs == "text" and inputs.dtype == np.uint8:  # which would be pixels
        return convert(inputs, np.int16)
    if inputs.dtype.kind not in "iu" or inputs.itemsize <= 4:
        return _to_float32(inputs)
    low, high = value_range(inputs)
    is_int32 = low >= -(2**31) and high < 2**31
    _require(raw, is_int32, f"inputs must be integers of 32 bits, got {low} to {high}; convert them to float")
    return convert(inputs, np.int32)


def squeeze(column: np.ndarray) -> np.ndarray:
    """A `column` [M, 1], as of a data frame, as [M]; others as they are."""
    return column[:, 0] if column.ndim == 2 and column.shape[1] == 1 else column


def _require(raw: RawDataset, condition: object, message: str) -> None:
    if not condition:
        raise DataError(f"{raw.name}: {message}")


def _check_part(raw: RawDataset, part: str, x: np.ndarray, y: np.ndarray, ids: np.ndarray | None) -> None:
    """Raises `DataError` if the training or the test examples are wrong in themselves."""
    has_axes, shapes = x.ndim >= 1 and y.ndim in (1, 2), f"{x.shape} and {y.shape}"
    _require(raw, has_axes, f"{part} inputs must be [M, ...] and labels [M] or [M, T], got {shapes}")
    _require(raw, len(x) == len(y), f"{len(x)} {part} inputs but {len(y)} labels")
    if ids is not None:
        _require(raw, ids.ndim == 1, f"{part} client ids must be [M], got {ids.shape}")
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
        remedy = "number them, such as by np.unique(y, return_inverse=True)[1]"
        _require(raw, y.dtype.kind in "biu", f"{part} labels must be integer classes, got {y.dtype}; {remedy}")
        is_class, largest = y.min() >= 0 and y.max() < raw.num_classes, raw.num_classes - 1
        more = "" if y.min() < 0 else f"set num_classes = {int(y.max()) + 1}, or "
        _require(raw, is_class, f"{part} labels must be 0 to {largest}, got {y.min()} to {y.max()}; {more}{remedy}")
    _check_numbers(raw, f"{part} labels", y)


def _check_numbers(raw: RawDataset, what: str, values: np.ndarray) -> None:
    is_number, remedy = values.dtype.kind in "biuf", "convert them, such as by .astype(float)"
    _require(raw, is_number, f"{what} must be numbers, got {values.dtype}; {remedy}")
    _require(raw, all_finite(values), f"{what} must be finite, got NaN or infinity as float32 (the largest is 3.4e38)")
