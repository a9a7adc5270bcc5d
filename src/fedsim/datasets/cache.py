"""Decoded data sets on disk: arrays that are mapped into memory, not read.

A folder with an .npy file for each array and index.json with their shapes and CRC-32s. It is written under another name
and then moved; what does not match its index, or was made from other files, is made again.
"""

import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.datasets.raw import RawDataset

VERSION = 1  # of what is cached; another one is made again
SCALARS = ("name", "num_classes")
ARRAYS = tuple(f.name for f in fields(RawDataset) if f.name not in SCALARS)


def directory() -> Path:
    """Where decoded data sets are kept: `FEDSIM_CACHE_DIR`, by default below the user's cache folder."""
    from platformdirs import user_cache_path

    return Path(os.environ.get("FEDSIM_CACHE_DIR") or user_cache_path("fedsim")).expanduser()


def cached(source: Path, decode: Callable[[], RawDataset]) -> RawDataset:
    """`decode()`, kept for as long as no file of the folder `source` changes; arrays are memory-mapped, read-only."""
    source = source.resolve()
    stamp = {path.name: [path.stat().st_size, path.stat().st_mtime_ns] for path in sorted(source.iterdir())}
    folder = directory() / f"{source.parent.name}-{hashlib.sha256(str(source).encode()).hexdigest()[:12]}"
    if (raw := _read(folder, stamp)) is None:
        _write(folder, stamp, decode())
        raw = _read(folder, stamp)
    if raw is None:
        raise OSError(f"{folder}: what was just written reads back differently; is the disk in order?")
    return raw


def _read(folder: Path, stamp: dict[str, list[int]]) -> RawDataset | None:
    """What `folder` has, or None where it is missing, stale or not whole."""
    try:
        index = json.loads((folder / "index.json").read_text())
        if index["version"] != VERSION or index["stamp"] != stamp:
            return None
        values: dict[str, Any] = {name: index[name] for name in SCALARS}
        for name, crc in index["arrays"].items():
            array = np.load(folder / f"{name}.npy", mmap_mode="r")
            if _crc(array) != crc:
                return None
            values[name] = array
    except (OSError, ValueError, KeyError):
        return None
    return RawDataset(**values)


def _write(folder: Path, stamp: dict[str, list[int]], raw: RawDataset) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as temporary:
        part = Path(temporary) / "part"
        part.mkdir()
        arrays = {name: np.ascontiguousarray(a) for name in ARRAYS if (a := getattr(raw, name)) is not None}
        for name, array in arrays.items():
            np.save(part / f"{name}.npy", array)
        index = {name: getattr(raw, name) for name in SCALARS}
        index |= {"version": VERSION, "stamp": stamp, "arrays": {name: _crc(a) for name, a in arrays.items()}}
        (part / "index.json").write_text(json.dumps(index))
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)


def _crc(array: np.ndarray) -> int:
    return zlib.crc32(array.reshape(-1).view(np.uint8).data)
