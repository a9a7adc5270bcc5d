"""Arrays in memory, and .npz files and folders of .npy files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.datasets import arrays
from tests.fuzz.generated.array_faults import FAULTS, OBJECT_FAULTS
from tests.fuzz.generated.truth import SITES, Case, Truth, draw_parts

FLOATS = ["float16", "float32", "float64", ">f4", ">f8", "longdouble", "bfloat16"]
INTEGERS = ["uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", ">i4", ">u2"]
PIXELS = [*INTEGERS, "whole floats", "fractions", "uint16 of 16 bits"]


def _as_pixels(rng: np.random.Generator, x: np.ndarray, form: str) -> Any:
    pixels = np.rint(255 * x)
    if form == "uint16 of 16 bits":
        return (257 * pixels).astype(np.uint16)
    if form == "fractions":
        return x.astype(rng.choice(["float32", "float64", ">f4"]))
    if form == "whole floats":
        return pixels.astype(rng.choice(["float32", "float64", ">f8", "float16"]))
    return pixels.astype(form)


def _container(rng: np.random.Generator, values: np.ndarray, form: str) -> Any:
    """The same numbers in another container."""
    if form == "list":
        return values.tolist()
    if form == "strided":
        return np.repeat(values, 2, axis=0)[::2]
    if form == "fortran":
        return np.asfortranarray(values)
    if form == "masked nowhere":
        return np.ma.array(values)
    if form == "read-only":
        values = values.copy()
        values.flags.writeable = False
    if form == "jax" and values.dtype.isnative and values.dtype.itemsize <= 4:
        import jax.numpy as jnp

        return jnp.asarray(values)
    if form == "pandas" and values.ndim <= 2:
        import pandas

        return pandas.DataFrame(values) if values.ndim == 2 else pandas.Series(values)
    if form == "polars" and values.ndim == 1 and values.dtype.isnative:
        import polars

        return polars.Series(values)
    return values


CONTAINERS = ["array"] * 4 + ["list", "strided", "fortran", "masked nowhere", "read-only", "jax", "pandas", "polars"]
IDS: dict[str, Callable[[np.ndarray], Any]] = {
    "int": lambda owner: owner,
    "negative": lambda owner: owner - 2,
    "huge": lambda owner: owner + 2**53,
    "uint64": lambda owner: owner.astype(np.uint64) + np.uint64(2**63),
    "big-endian": lambda owner: owner.astype(">i8"),
    "column": lambda owner: owner[:, None],
    "python integers": lambda owner: [2**63 - 2 * int(i == 1) + int(i) for i in owner],
    "float": lambda owner: owner + 0.5,
    "bytes": lambda owner: owner.astype("S"),
    "text": lambda owner: SITES[owner],
    "text list": lambda owner: SITES[owner].tolist(),
    "object": lambda owner: SITES[owner].astype(object),
    "date": lambda owner: np.datetime64("2020-01-01") + owner,
    "sparse": lambda owner: owner * 10**9,
}
Y_FORMS = ["uint8", "int8", "int32", "int64", "uint64", ">i4"]


def _memory_arrays(rng: np.random.Generator, can_be_object: bool) -> tuple[str, str, dict[str, Any], Truth, Any, bool]:
    """Form, fault, arrays, truths, and whether there are clients."""
    kind = rng.choice(["gray", "rgb", "vector"])
    train, test = draw_parts(rng, kind)
    is_regression, is_flat = bool(rng.random() < 0.15), kind == "gray" and rng.random() < 0.2
    for part in filter(None, (train, test)):
        part.x = part.x[..., 0] if is_flat else part.x
        part.y = np.round(rng.normal(size=len(part.y)), 3) + 1e-4 if is_regression else part.y
    x_form = rng.choice(FLOATS if kind == "vector" else PIXELS)
    containers = CONTAINERS if can_be_object else ["array"]
    x_containers = [c for c in containers if c != "list" or x_form != "uint16 of 16 bits"]  # lists are int64
    has_clients, column = rng.random() < 0.6, rng.random() < 0.2
    id_form = rng.choice([i for i in IDS if can_be_object or i not in ("object", "python integers")])
    x_containers = ["array"] if is_flat else x_containers
    form = f"{kind}{' [M, H, W]' * is_flat} {x_form}{', regression' * is_regression}" + f", ids {id_form}" * has_clients
    values: dict[str, Any] = {}
    for suffix, part in (("", train), ("_test", test)):
        if part is None:
            continue
        if x_form == "bfloat16":
            import ml_dtypes

            x = part.x.astype(ml_dtypes.bfloat16) if can_be_object else part.x
            part.x = x.astype(np.float64)
        else:
            x = part.x.astype(x_form) if kind == "vector" else _as_pixels(rng, part.x, x_form)
        if is_flat and x.dtype != np.uint8:
            part.x = x.astype(np.float64)  # three axes may be something else than images
        container = rng.choice(x_containers)
        form += f", x{suffix} in {container}"
        values["x" + suffix] = x if x_form == "bfloat16" else _container(rng, x, container)
        y = part.y.astype(rng.choice(["float32", "float64", ">f8"] if is_regression else Y_FORMS))
        values["y" + suffix] = y[:, None] if column else _container(rng, y, rng.choice(containers))
        if has_clients:
            key = "test_client_ids" if suffix else "client_ids"
            values[key] = IDS[id_form](part.owner)
            if not can_be_object:
                values[key] = np.asarray(values[key])
    faults = FAULTS | (OBJECT_FAULTS if can_be_object else {})
    fault = rng.choice(list(faults)) if rng.random() < 0.4 and not (is_regression or is_flat) else ""
    if fault:
        changed = faults[fault](rng, values)
        values, fault = (values, "") if changed is None else (changed, fault)
    return form, fault, values, train, test, has_clients


def memory(rng: np.random.Generator, folder: Path) -> Case:
    """`from_arrays`."""
    form, fault, values, train, test, has_clients = _memory_arrays(rng, True)
    return Case(f"memory {form}", fault, lambda: arrays.from_arrays(**values), train, test, has_clients)


def npz(rng: np.random.Generator, folder: Path) -> Case:
    """An .npz file, or a folder of .npy files."""
    form, fault, values, train, test, has_clients = _memory_arrays(rng, False)
    folder.mkdir(parents=True)
    path = folder / "mine.npz"
    is_folder = rng.random() < 0.4
    if is_folder:
        for name, value in values.items():
            np.save(folder / f"{name}.npy", value)
    else:
        np.savez(path, **values)
        if not fault and rng.random() < 0.15:
            content = path.read_bytes()
            path.write_bytes(content[: int(rng.integers(len(content) - 1))])
            fault = "truncated"
    read = lambda: arrays.read(folder if is_folder else path)
    return Case(f"npz {form}", fault, read, train, test, has_clients)
