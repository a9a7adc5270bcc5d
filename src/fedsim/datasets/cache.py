"""Decoded data sets on disk: arrays that are mapped into memory, not read.

A folder with an .npy file for each array and index.json with their CRC-32s; its name tells the files that it was made
from. It is written under another name and then moved; what does not match its index is made again.
"""

import contextlib
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

from fedsim.datasets.raw import BROKEN, RawDataset

VERSION = 2  # of what is cached
SCALARS = ("name", "num_classes", "inputs")
ARRAYS = tuple(f.name for f in fields(RawDataset) if f.name not in SCALARS)


def directory() -> Path:
    """Where decoded data sets are kept: `FEDSIM_CACHE_DIR`, by default below the user's cache folder."""
    from platformdirs import user_cache_path

    return Path(os.environ.get("FEDSIM_CACHE_DIR") or user_cache_path("fedsim")).expanduser()


def cached(source: Path, decode: Callable[[], RawDataset]) -> RawDataset:
    """`decode()`, kept for as long as no file of the folder `source` changes; arrays are memory-mapped, read-only."""
    source = source.resolve()
    stamp = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(source.iterdir())]
    name = f"{source.parent.name}-{_digest(str(source))}"
    folder = directory() / f"{name}-{_digest(f'{VERSION} {stamp}')}"
    if (raw := _read(folder)) is not None:
        return raw
    raw = decode()
    _write(folder, raw)
    for stale in directory().glob(f"{name}-*"):
        if stale != folder:
            shutil.rmtree(stale, ignore_errors=True)
    return _read(folder) or raw


def _read(folder: Path) -> RawDataset | None:
    """What `folder` has, or None where it is missing or not whole."""
    try:
        index = json.loads((folder / "index.json").read_text())
        values: dict[str, Any] = {name: index[name] for name in SCALARS}
        for name, crc in index["arrays"].items():
            array = np.load(folder / f"{name}.npy", mmap_mode="r")
            if _crc(array) != crc:
                return None
            values[name] = array
        return RawDataset(**values)
    except (*BROKEN, LookupError):
        return None


def _write(folder: Path, raw: RawDataset) -> None:
    """Puts `raw` there, unless another process just did."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        part = Path(temporary) / "part"
        part.mkdir()
        arrays = {name: np.ascontiguousarray(a) for name in ARRAYS if (a := getattr(raw, name)) is not None}
        for name, array in arrays.items():
            np.save(part / f"{name}.npy", array)
        index = {name: getattr(raw, name) for name in SCALARS}
        (part / "index.json").write_text(json.dumps(index | {"arrays": {k: _crc(a) for k, a in arrays.items()}}))
        if _read(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # it is there after all
                part.rename(folder)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _crc(array: np.ndarray) -> int:
    return zlib.crc32(array.reshape(-1).view(np.uint8).data)
