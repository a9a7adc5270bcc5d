"""Cache of decoded data sets on disk, as memory-mapped arrays.

An entry is a folder with an .npy file per array and index.json with their CRC-32s and all else; its name is a digest of
the source files. It is written under a temporary name and then moved. An entry that does not match its index is written
again.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.datasets.raw import RawDataset
from fedsim.errors import LOAD_ERRORS, expand_user, reason

VERSION = 3  # of the format
ARRAYS = tuple(f.name for f in fields(RawDataset) if f.type in (np.ndarray, np.ndarray | None))
OTHERS = tuple(f.name for f in fields(RawDataset) if f.name not in ARRAYS)


def directory() -> Path:
    """The cache folder: `FEDSIM_CACHE_DIR`, or fedsim's folder in the user's cache folder."""
    from platformdirs import user_cache_path

    return expand_user(os.environ.get("FEDSIM_CACHE_DIR") or str(user_cache_path("fedsim")))


def cached(source: Path, decode: Callable[[], RawDataset]) -> RawDataset:
    """`decode()`, cached until a file of the folder `source` changes; arrays are memory-mapped and read-only.

    Without a cache, and with a note, if its folder cannot be written.
    """
    source = source.resolve()
    stamp = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(source.iterdir())]
    name = f"{source.parent.name}-{_digest(str(source))}"
    folder = directory() / f"{name}-{_digest(f'{VERSION} {stamp}')}"
    if (raw := _read(folder)) is not None:
        return raw
    raw = decode()
    try:
        _write(folder, raw)
    except OSError as error:  # full, or not writable
        note = f"{raw.name}: is not cached in {directory()}: {reason(error)}; set FEDSIM_CACHE_DIR to another folder"
        return replace(raw, notes=(*raw.notes, note))
    for stale in directory().glob(f"{name}-*"):
        if stale != folder:
            shutil.rmtree(stale, ignore_errors=True)
    return _read(folder) or raw


def _read(folder: Path) -> RawDataset | None:
    """The data set in `folder`, or None if it is missing or damaged."""
    try:
        index = json.loads((folder / "index.json").read_text())
        values: dict[str, Any] = {name: index[name] for name in OTHERS}
        for name, crc in index["arrays"].items():
            array = np.load(folder / f"{name}.npy", mmap_mode="r")
            if _crc(array) != crc:
                return None
            values[name] = array
        return RawDataset(**values | {"notes": tuple(values["notes"])})
    except (*LOAD_ERRORS, LookupError):
        return None


def _write(folder: Path, raw: RawDataset) -> None:
    """Writes `raw` to `folder`, unless another process just did."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        part = Path(temporary) / "part"
        part.mkdir()
        arrays = {name: np.ascontiguousarray(a) for name in ARRAYS if (a := getattr(raw, name)) is not None}
        for name, array in arrays.items():
            np.save(part / f"{name}.npy", array)
        index = {name: getattr(raw, name) for name in OTHERS}
        (part / "index.json").write_text(json.dumps(index | {"arrays": {k: _crc(a) for k, a in arrays.items()}}))
        if _read(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # another process was faster
                part.rename(folder)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _crc(array: np.ndarray) -> int:
    return zlib.crc32(array.reshape(-1).view(np.uint8).data)
