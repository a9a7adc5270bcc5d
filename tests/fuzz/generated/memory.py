"""Arrays in memory, and .npz files and folders of .npy files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pandas as pd

from fedsim.datasets import arrays
from tests.fuzz.generated.cases import SITES, WORDS, Case, data_case, draw_parts, pick

NUMBERS = ["float16", "float32", "float64", ">f4", ">f8", "longdouble", ml_dtypes.bfloat16]
PIXELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # of x in [0, 1]
    "16 bits": lambda x: np.rint(65535 * x).astype(np.uint16),
    "fractions": lambda x: x.astype(np.float32),
    "big-endian fractions": lambda x: x.astype(">f4"),
    **{
        str(kind): lambda x, kind=kind: np.rint(255 * x).astype(kind)
        for kind in "u1 i2 u2 i4 u4 i8 u8 >i4 >u2 f2 f4 f8 >f8".split()
    },
}
LABELS = ["uint8", "int8", "int32", "int64", "uint64", ">i4"]
CONTAINERS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda a: a,
    "list": lambda a: a if a.dtype == np.uint16 else a.tolist(),  # lists of 16 bits are int64
    "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
    "fortran": np.asfortranarray,
    "masked nowhere": np.ma.array,
    "read-only": lambda a: np.broadcast_to(a, a.shape),
    "jax": lambda a: jnp.asarray(a) if a.dtype.isnative and a.dtype.itemsize <= 4 else a,
    "pandas": lambda a: {1: pd.Series, 2: pd.DataFrame}.get(a.ndim, np.asarray)(a),
}
IDS: dict[str, Callable[[np.ndarray], Any]] = {
    "integers": lambda owner: owner,
    "negative": lambda owner: owner - 2,
    "huge": lambda owner: owner + 2**53,
    "uint64": lambda owner: owner.astype(np.uint64) + np.uint64(2**63),
    "big-endian": lambda owner: owner.astype(">i8"),
    "column": lambda owner: owner[:, None],
    "floats": lambda owner: owner + 0.5,
    "bytes": lambda owner: owner.astype("S"),
    "texts": lambda owner: SITES[owner],
    "dates": lambda owner: np.datetime64("2020-01-01") + owner,
    "sparse": lambda owner: owner * 10**9,
    "Python integers": lambda owner: [2**63 - 2 * int(i == 1) + int(i) for i in owner],
    "list of texts": lambda owner: SITES[owner].tolist(),
    "objects": lambda owner: SITES[owner].astype(object),
}


def memory(rng: np.random.Generator, folder: Path, is_file: bool = False) -> Case:
    """The arguments of `from_arrays`, or the same as an .npz file or a folder of .npy files."""
    kind = pick(rng, ["gray", "rgb", "vector"])
    parts, has_clients = draw_parts(rng, kind), bool(rng.random() < 0.6)
    is_regression, is_flat = bool(rng.random() < 0.15), kind == "gray" and bool(rng.random() < 0.2)
    x_form = pick(rng, NUMBERS if kind == "vector" else PIXELS)
    x_form = "fractions" if is_flat and x_form == "16 bits" else x_form  # three axes may be no images
    x_form = "float64" if is_file and x_form is ml_dtypes.bfloat16 else x_form
    id_form, is_column = pick(rng, list(IDS)[: -3 if is_file else None]), bool(rng.random() < 0.2)
    form, values = f"{kind} {'[M, H, W] ' * is_flat}{x_form}, ids {id_form if has_clients else 'none'}", {}
    for suffix, ids, part in zip(("", "_test"), ("client_ids", "test_client_ids"), parts, strict=False):
        part.x = part.x[..., 0] if is_flat else part.x
        part.y = np.round(rng.normal(size=len(part.y)), 3) + 1e-4 if is_regression else part.y
        x = part.x.astype(x_form) if kind == "vector" else PIXELS[x_form](part.x)
        part.x = x.astype(np.float64) if kind == "vector" else part.x
        y = part.y.astype(pick(rng, ["float32", "float64", ">f8"] if is_regression else LABELS))
        names = ["array" if is_file else pick(rng, CONTAINERS) for _ in range(2)]
        names[0] = "array" if x_form is ml_dtypes.bfloat16 else names[0]
        values |= {"x" + suffix: CONTAINERS[names[0]](x)}
        values |= {"y" + suffix: y[:, None] if is_column else CONTAINERS[names[1]](y)}
        values |= {ids: IDS[id_form](part.owner)} if has_clients else {}
        form += f", {' and '.join(names)}"
    faults = list(FAULTS)[: -2 if is_file else None]
    fault = pick(rng, faults, 0.0 if is_regression or is_flat else 0.4)
    changed = FAULTS[fault](rng, values) if fault else None
    fault, values = (fault, changed) if changed else ("", values)
    if not is_file:
        return data_case(form, fault, lambda: arrays.from_arrays(**values), parts, has_clients)
    folder.mkdir(parents=True)
    path = folder if rng.random() < 0.4 else folder / "mine.npz"
    if path == folder:
        for name, value in values.items():
            np.save(folder / f"{name}.npy", value)
    else:
        np.savez(path, **values)
        if not fault and rng.random() < 0.15:
            fault, content = "truncated", path.read_bytes()
            path.write_bytes(content[: int(rng.integers(len(content) - 1))])
    return data_case(f"{path.name}: {form}", fault, lambda: arrays.read(path), parts, has_clients)


Values = dict[str, Any]
Change = Callable[[np.random.Generator, Values], Values | None]


def _inputs(change: Callable[[np.ndarray], Any], least_axes: int = 0) -> Change:
    return lambda rng, values: (
        None
        if np.ndim(values["x"]) < least_axes
        else values | {key: change(np.asarray(values[key])) for key in ("x", "x_test") if key in values}
    )


def _labels(change: Callable[[np.ndarray], Any]) -> Change:
    numbers = lambda labels: np.asarray(labels).reshape(-1).astype(np.int64)
    return lambda rng, values: values | {key: change(numbers(values[key])) for key in ("y", "y_test") if key in values}


def _put(value: float) -> Change:
    return _inputs(lambda x: np.where(np.arange(x.size).reshape(x.shape) == x.size // 2, value, x.astype(np.float64)))


def _stretch(high: float, low: float, dtype: str) -> Change:
    return _inputs(lambda x: (x.astype(np.float64) / x.max() * (high - low) + low).astype(dtype), least_axes=4)


def _with_ids(change: Callable[[str, np.ndarray], Any], needed: str = "x") -> Change:
    keys = lambda values: ["client_ids", "test_client_ids"][: 1 + ("x_test" in values)]
    return lambda rng, values: (
        values | {key: change(key, np.arange(len(values["x_test" if "test" in key else "x"]))) for key in keys(values)}
        if needed in values
        else None
    )


def _mask(rng: np.random.Generator, values: Values) -> Values | None:
    keys = [key for key, value in values.items() if isinstance(value, np.ndarray) and value.dtype.kind in "iuf"]
    if not keys:
        return None
    key = pick(rng, keys)
    mask = np.arange(values[key].size).reshape(values[key].shape) == rng.integers(values[key].size)
    return values | {key: np.ma.array(values[key], mask=mask)}


def _missing_id(rng: np.random.Generator, values: Values) -> Values | None:
    if "client_ids" not in values:
        return None
    ids = np.asarray(values["client_ids"]).reshape(-1).tolist()
    ids[int(rng.integers(len(ids)))] = pick(rng, [None, float("nan")])
    return values | {"client_ids": ids if rng.random() < 0.5 else np.asarray(ids, object)}


FAULTS: dict[str, Change] = {
    "NaN": _put(np.nan),
    "infinity": _put(np.inf),
    "channels first": _inputs(lambda x: np.moveaxis(x, -1, 1), least_axes=4),
    "12 bits in int64": _stretch(4095, 0, "int64"),
    "floats of 0 to 255": _stretch(254.3, 0, "float32"),
    "int8": _stretch(127, -128, "int8"),
    "texts": _inputs(lambda x: x.astype(np.float64).astype(str)),
    "complex": _inputs(lambda x: x.astype(np.float64).astype(complex)),
    "dates": _inputs(lambda x: x.astype(np.float64).astype(np.int64).astype("M8[s]")),
    "one-hot": _labels(lambda y: np.eye(6)[y]),
    "whole floats as labels": _labels(lambda y: y.astype(float)),
    "negative labels": _labels(lambda y: y - 1),
    "labels that are ids": _labels(lambda y: y * 10**6 + 17),
    "texts as labels": _labels(lambda y: WORDS[y]),
    "one label too few": _labels(lambda y: y[:-1]),
    "one client": _with_ids(lambda key, rows: np.full(len(rows), "a")),
    "test ids of another type": _with_ids(lambda key, rows: rows if "test" in key else rows.astype(str), "x_test"),
    "no test labels": lambda rng, values: (
        {key: value for key, value in values.items() if key != "y_test"} if "y_test" in values else None
    ),
    "number of classes": lambda rng, values: (
        values | {"num_classes": pick(rng, map(np.asarray, ([3], 2.5, "2", 1, -1)))}
    ),
    "mask": _mask,
    "missing id": _missing_id,
}
