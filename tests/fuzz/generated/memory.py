"""Arrays in memory, and .npz files and folders of .npy files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pandas as pd
import polars

from fedsim.datasets import arrays
from tests.fuzz.generated.cases import SITES, WORDS, Case, draw_parts, pick

NUMBERS = ["float16", "float32", "float64", ">f4", ">f8", "longdouble", ml_dtypes.bfloat16]
INTEGERS = ["u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", ">u2", "f2", "f4", "f8", ">f8"]
LABELS = ["uint8", "int8", "int32", "int64", "uint64", ">i4"]
PIXELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # of x in [0, 1]
    "16 bits": lambda x: np.rint(65535 * x).astype(np.uint16),
    "fractions": lambda x: x.astype(np.float32),
    "big-endian fractions": lambda x: x.astype(">f4"),
    **{kind: lambda x, kind=kind: np.rint(255 * x).astype(kind) for kind in INTEGERS},
}
CONTAINERS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda a: a,
    "list": lambda a: a if a.dtype == np.uint16 else a.tolist(),  # lists of 16 bits are int64
    "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
    "fortran": np.asfortranarray,
    "masked nowhere": np.ma.array,
    "read-only": lambda a: np.broadcast_to(a, a.shape),
    "jax": lambda a: jnp.asarray(a) if a.dtype.isnative and a.dtype.itemsize <= 4 else a,
    "pandas": lambda a: {1: pd.Series, 2: pd.DataFrame}.get(a.ndim, np.asarray)(a),
    "polars": lambda a: polars.Series(a) if a.ndim == 1 and a.dtype.isnative else a,
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


def _put(a: Any, value: Any, dtype: Any) -> np.ndarray:
    a = np.asarray(a).astype(dtype)
    a.flat[a.size // 2] = value
    return a


def _stretch(high: float, low: float, dtype: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: (x.astype(float) / x.max() * (high - low) + low).astype(dtype)


FAULTS: dict[str, tuple[str, Callable[[Any], Any]]] = {  # part of the arguments' names, and a change of each value
    "NaN": ("x", lambda x: _put(x, np.nan, float)),
    "infinity": ("x", lambda x: _put(x, np.inf, float)),
    "texts": ("x", lambda x: x.astype(float).astype(str)),
    "complex": ("x", lambda x: x.astype(complex)),
    "dates": ("x", lambda x: x.astype(float).astype(int).astype("M8[s]")),
    "one-hot": ("y", lambda y: np.eye(6)[y]),
    "whole floats as labels": ("y", lambda y: y.astype(float)),
    "negative labels": ("y", lambda y: y - 1),
    "labels that are ids": ("y", lambda y: y * 10**6 + 17),
    "texts as labels": ("y", lambda y: WORDS[y]),
    "one label too few": ("y", lambda y: y[:-1]),
    "no test labels": ("y_test", lambda y: None),
    "one client": ("ids", lambda ids: np.full(len(ids), "a")),
    "test ids of another type": (
        "test_client",
        lambda ids: ids.astype(str) if ids.dtype.kind in "iuf" else np.arange(len(ids)),
    ),
    "number of classes": ("num_classes", lambda value: np.asarray(value)),
    "channels first": ("x", lambda x: np.moveaxis(x, -1, 1)),
    "12 bits in int64": ("x", _stretch(4095, 0, "int64")),
    "floats of 0 to 255": ("x", _stretch(254.3, 0, "float32")),
    "int8": ("x", _stretch(127, -128, "int8")),
}
OF_PIXELS = list(FAULTS)[-4:]
IN_MEMORY: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "masked inputs": ("x", lambda x: np.ma.array(x, mask=_put(np.zeros(x.shape), 1, bool))),
    "masked labels": ("y", lambda y: np.ma.array(y, mask=_put(np.zeros(y.shape), 1, bool))),
    "missing id": ("ids", lambda ids: _put(ids, None, object)),
    "NaN as id": ("ids", lambda ids: _put(ids, np.nan, object).tolist()),
}


def memory(rng: np.random.Generator, folder: Path, is_file: bool = False) -> Case:
    """The arguments of `from_arrays`, or the same as an .npz file or a folder of .npy files."""
    kind, is_regression = pick(rng, ["gray", "rgb", "vector"]), bool(rng.random() < 0.15)
    parts, has_clients, is_column = draw_parts(rng, kind), bool(rng.random() < 0.6), bool(rng.random() < 0.2)
    is_flat = kind == "gray" and bool(rng.random() < 0.2)
    x_form = pick(rng, NUMBERS[: -1 if is_file else None] if kind == "vector" else list(PIXELS)[is_flat:])
    id_form = pick(rng, list(IDS)[: -3 if is_file else None])
    faults = {} if is_regression or is_flat else FAULTS if is_file else FAULTS | IN_MEMORY
    fault = pick(rng, [f for f in faults if kind != "vector" or f not in OF_PIXELS] or [""], 0.4)
    target, change = faults.get(fault, ("nothing", None))
    form, values = f"{kind} {'[M, H, W] ' * is_flat}{x_form}, ids {id_form if has_clients else 'none'}", {}
    if fault == "number of classes":
        values["num_classes"] = pick(rng, [[3], 2.5, "2", 1, -1])
    for suffix, ids, part in zip(("", "_test"), ("client_ids", "test_client_ids"), parts, strict=False):
        part.x = part.x[..., 0] if is_flat else part.x
        part.y = np.round(rng.normal(size=len(part.y)), 3) + 1e-4 if is_regression else part.y
        x = part.x.astype(x_form) if kind == "vector" else PIXELS[x_form](part.x)
        is_scaled = kind != "vector" and not (is_flat and x.dtype != np.uint8)  # three axes may be no images
        part.x = part.x if is_scaled else x.astype(float)
        values |= {"x" + suffix: x, "y" + suffix: part.y, **({ids: IDS[id_form](part.owner)} if has_clients else {})}
    fault = fault if any(target in name for name in values) else ""
    for name, value in values.items():
        if fault and target in name:
            values[name] = change(np.ravel(value) if "ids" in name else value)
        elif "ids" not in name:
            if name[0] == "y":
                value = value.astype(pick(rng, ["float32", "float64", ">f8"] if is_regression else LABELS))
                value = value[:, None] if is_column else value
            is_array = is_file or (is_flat and name[0] == "x")  # lists have another type, which only images may
            containers = ["array"] if is_array else ["array", "jax"] if value.dtype.kind == "V" else CONTAINERS
            container = pick(rng, containers)
            form, values[name] = f"{form}, {name} {value.dtype} in {container}", CONTAINERS[container](value)
    values = {name: value for name, value in values.items() if value is not None}
    if not is_file:
        return Case(form, fault, lambda: arrays.from_arrays(**values), parts, has_clients)
    folder.mkdir(parents=True)
    path = folder if rng.random() < 0.4 else folder / "mine.npz"
    for name, value in values.items() if path == folder else ():
        np.save(folder / f"{name}.npy", value)
    if path != folder:
        np.savez(path, **values)
        if not fault and rng.random() < 0.15:
            fault, content = "truncated", path.read_bytes()
            path.write_bytes(content[: int(rng.integers(len(content) - 1))])
    return Case(f"{path.name}: {form}", fault, lambda: arrays.read(path), parts, has_clients)
