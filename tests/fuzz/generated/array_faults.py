"""Faults of arrays: each changes the arrays of `from_arrays`, or returns None where it does not apply."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.generated.truth import NAMES

Values = dict[str, Any]
Change = Callable[[np.random.Generator, Values], Values | None]


def _inputs(change: Callable[[np.ndarray], Any], of_pictures: bool = False) -> Change:
    def apply(rng: np.random.Generator, values: Values) -> Values | None:
        if of_pictures and np.ndim(values["x"]) < 4:
            return None
        return values | {key: change(np.asarray(values[key])) for key in ("x", "x_test") if key in values}

    return apply


def _labels(change: Callable[[np.ndarray], Any]) -> Change:
    numbers = lambda labels: np.asarray(labels).reshape(-1).astype(np.int64)
    return lambda rng, values: values | {key: change(numbers(values[key])) for key in ("y", "y_test") if key in values}


def _put(x: np.ndarray, value: float) -> np.ndarray:
    x = np.asarray(x, np.float64).copy()
    x.flat[x.size // 2] = value
    return x


def _stretch(high: float, low: float, dtype: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: (x.astype(np.float64) / x.max() * (high - low) + low).astype(dtype)


def _one_client(rng: np.random.Generator, values: Values) -> Values | None:
    ids = {key: x for key, x in (("client_ids", "x"), ("test_client_ids", "x_test")) if key in values}
    return values | {key: np.full(len(values[x]), "a") for key, x in ids.items()} if ids else None


def _other_test_ids(rng: np.random.Generator, values: Values) -> Values | None:
    if "test_client_ids" not in values:
        return None
    ids, test_ids = (np.arange(len(values[key])) for key in ("x", "x_test"))
    return values | {"client_ids": ids.astype(str), "test_client_ids": test_ids}


def _no_test_labels(rng: np.random.Generator, values: Values) -> Values | None:
    return {key: value for key, value in values.items() if key != "y_test"} if "y_test" in values else None


def _num_classes(rng: np.random.Generator, values: Values) -> Values:
    wrong = [np.asarray([3]), np.asarray(2.5), np.asarray("2"), np.asarray(1), np.asarray(-1)]
    return values | {"num_classes": wrong[rng.integers(len(wrong))]}


def _mask(rng: np.random.Generator, values: Values) -> Values | None:
    keys = [key for key, value in values.items() if isinstance(value, np.ndarray) and value.dtype.kind in "iuf"]
    if not keys:
        return None
    key = rng.choice(keys)
    mask = np.zeros(values[key].shape, bool)
    mask.flat[rng.integers(mask.size)] = True
    return values | {key: np.ma.array(values[key], mask=mask)}


def _missing_id(rng: np.random.Generator, values: Values) -> Values | None:
    if "client_ids" not in values:
        return None
    ids = np.asarray(values["client_ids"]).reshape(-1).tolist()
    ids[int(rng.integers(len(ids)))] = [None, float("nan")][rng.integers(2)]
    return values | {"client_ids": ids if rng.random() < 0.5 else np.asarray(ids, object)}


OBJECT_FAULTS: dict[str, Change] = {"mask": _mask, "missing id": _missing_id}
FAULTS: dict[str, Change] = {
    "NaN": _inputs(lambda x: _put(x, np.nan)),
    "infinity": _inputs(lambda x: _put(x, np.inf)),
    "channels first": _inputs(lambda x: np.moveaxis(x, -1, 1), of_pictures=True),
    "12 bits in int64": _inputs(_stretch(4095, 0, "int64"), of_pictures=True),
    "floats of 0 to 255": _inputs(_stretch(254.3, 0, "float32"), of_pictures=True),
    "int8": _inputs(_stretch(127, -128, "int8"), of_pictures=True),
    "texts": _inputs(lambda x: x.astype(np.float64).astype(str)),
    "complex": _inputs(lambda x: x.astype(np.float64).astype(complex)),
    "dates": _inputs(lambda x: x.astype(np.float64).astype(np.int64).astype("M8[s]")),
    "one-hot": _labels(lambda y: np.eye(6)[y]),
    "whole floats as labels": _labels(lambda y: y.astype(float)),
    "negative labels": _labels(lambda y: y - 1),
    "labels that are ids": _labels(lambda y: y * 10**6 + 17),
    "texts as labels": _labels(lambda y: NAMES[y]),
    "one label too few": _labels(lambda y: y[:-1]),
    "one client": _one_client,
    "test ids of another type": _other_test_ids,
    "no test labels": _no_test_labels,
    "number of classes": _num_classes,
}
