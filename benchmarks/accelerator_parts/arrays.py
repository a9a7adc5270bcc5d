"""Data sets as .npz files in parts that are small enough to be carried one by one.

A part holds the slices of some arrays, each slice as the bytes of an .xz stream. `NAME-1-of-3.npz` says how many there
are; a set of which one is missing is missing.
"""

import lzma
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from accelerator_parts.ledger import Skipped
from fedsim.core.types import ClientData, FederatedDataset

MOST_BYTES = 45_000_000  # of a part, about
SLICE_BYTES = 16_000_000  # of what a slice holds, before it is packed
PLACE = re.compile(r"(.+)-(\d+)-of-(\d+)\.npz")


class MissingData(Skipped):
    """A data set, or a part of it, that is not in the folders."""


def find(folders: Sequence[Path]) -> dict[str, dict[int, Path]]:
    """The complete data sets in `folders` by name, each with its parts."""
    found: dict[str, dict[int, Path]] = {}
    needed: dict[str, int] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*-of-*.npz")):
            if match := PLACE.fullmatch(path.name):
                found.setdefault(match[1], {})[int(match[2])] = path
                needed[match[1]] = int(match[3])
    return {name: parts for name, parts in found.items() if set(parts) == set(range(1, needed[name] + 1))}


def load(name: str, folders: Sequence[Path]) -> FederatedDataset:
    """The data set `name` from the parts in `folders`. Raises `MissingData` where one is missing."""
    parts = find(folders).get(name)
    if parts is None:
        raise MissingData(f"{name}: not all parts are in {', '.join(map(str, folders))}")
    slices: dict[str, dict[int, tuple[bytes, np.ndarray, str]]] = {}
    for path in parts.values():
        with np.load(path) as file:
            for entry in {entry.rpartition(".")[0] for entry in file.files}:
                array, number = entry.rsplit(".", 1)
                packed = file[f"{entry}.packed"].tobytes(), file[f"{entry}.shape"], str(file[f"{entry}.dtype"])
                slices.setdefault(array, {})[int(number)] = packed
    with ThreadPoolExecutor() as pool:  # lzma lets other threads run
        arrays = {
            array: np.concatenate(list(pool.map(lambda one: unpack(*one), [of[i] for i in sorted(of)])))
            for array, of in slices.items()
        }
    inputs, num_classes = str(arrays["inputs"][0]), int(arrays["num_classes"][0])
    corrupted = np.zeros(len(arrays["counts"]), bool)
    train = ClientData(arrays["x"], arrays["y"], arrays["offsets"], arrays["counts"], corrupted)
    return FederatedDataset(name, train, arrays["x_test"], arrays["y_test"], num_classes, inputs)  # type: ignore[arg-type]


def save(dataset: FederatedDataset, name: str, folder: Path) -> list[Path]:
    """Writes `dataset` into `folder` as the set `name`; the parts' paths. Older parts of the name are removed."""
    train = dataset.train
    arrays: dict[str, Any] = {
        "inputs": np.asarray([dataset.inputs]),
        "num_classes": np.asarray([dataset.num_classes]),
        "offsets": train.offsets,
        "counts": train.counts,
        "y": train.y,
        "y_test": dataset.y_test,
        "x": train.x,
        "x_test": dataset.x_test,
    }
    parts: list[dict[str, np.ndarray]] = [{}]
    size = 0
    for entry, values in _slices(arrays):
        packed = np.frombuffer(pack(values), np.uint8)
        if size + packed.nbytes > MOST_BYTES and parts[-1]:
            parts.append({})
            size = 0
        size += packed.nbytes
        parts[-1] |= {
            f"{entry}.packed": packed,
            f"{entry}.shape": np.asarray(values.shape),
            f"{entry}.dtype": np.asarray(values.dtype.str),
        }
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{name}-*-of-*.npz"):
        old.unlink()
    paths = [folder / f"{name}-{number}-of-{len(parts)}.npz" for number in range(1, len(parts) + 1)]
    for path, entries in zip(paths, parts, strict=True):
        np.savez(path, **entries)  # type: ignore[arg-type]
    return paths


def _slices(arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays cut along their first axis: "x.0", "x.1" and so on."""
    for name, values in arrays.items():
        rows = max(1, SLICE_BYTES * len(values) // max(1, values.nbytes))
        for number, start in enumerate(range(0, max(1, len(values)), rows)):
            yield f"{name}.{number}", values[start : start + rows]


def pack(values: np.ndarray) -> bytes:
    """The array as an .xz stream. Of pictures neighbouring pixels are subtracted, which saves a fifth."""
    if not _is_pictures(values.shape, values.dtype):
        return lzma.compress(values.tobytes())
    filters = [{"id": lzma.FILTER_DELTA, "dist": dist} for dist in (1, values.shape[2])]
    planes = np.ascontiguousarray(values.transpose(0, 3, 1, 2))
    return lzma.compress(planes.tobytes(), filters=[*filters, {"id": lzma.FILTER_LZMA2, "preset": 6}])


def unpack(packed: bytes, shape: np.ndarray, dtype: str) -> np.ndarray:
    """The array that was packed."""
    size = tuple(int(length) for length in shape)
    values = np.frombuffer(lzma.decompress(packed), np.dtype(dtype))
    if not _is_pictures(size, values.dtype):
        return values.reshape(size)
    count, height, width, channels = size
    return np.ascontiguousarray(values.reshape(count, channels, height, width).transpose(0, 2, 3, 1))


def _is_pictures(shape: Sequence[int], dtype: np.dtype) -> bool:
    return len(shape) == 4 and dtype == np.uint8 and 1 <= shape[2] <= 256
