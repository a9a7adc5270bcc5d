"""Numbers and texts as one text in a page: JSON followed by arrays, compressed, in base64."""

import base64
import gzip
import json
from typing import Any

import numpy as np

LEVEL = 6
DTYPES = {"f4": "float32", "u2": "uint16", "i4": "int32"}  # names in numpy and in the page
MISSING = 65535  # of a share in 16 bits
STEPS = 65534  # between 0 and 1


def pack_shares(numbers: np.ndarray) -> np.ndarray:
    """`numbers` [...] from 0 to 1 as uint16, to 0.001 percentage points; MISSING if not finite."""
    is_finite = np.isfinite(numbers)
    codes = np.rint(np.clip(np.where(is_finite, numbers, 0), 0, 1) * STEPS)
    return np.where(is_finite, codes, MISSING).astype(np.uint16)


def pack(document: Any) -> str:
    """`document` of dicts, lists, texts, numbers and arrays; little-endian, NaN only in arrays.

    Unpacked: four bytes with the length of the JSON, the JSON, and at multiples of four bytes the arrays. In the JSON
    an array is {"array": kind, "at": its first byte after the JSON, "length": elements}.
    """
    blobs: list[bytes] = []
    size = 0

    def describe(value: Any) -> Any:
        nonlocal size
        if isinstance(value, np.ndarray):
            blob = np.ascontiguousarray(value, value.dtype.newbyteorder("<")).tobytes()
            entry = {"array": DTYPES[value.dtype.str[1:]], "at": size, "length": value.size}
            blobs.append(blob + bytes(-len(blob) % 4))
            size += len(blobs[-1])
            return entry
        if isinstance(value, dict):
            return {key: describe(inner) for key, inner in value.items()}
        return [describe(inner) for inner in value] if isinstance(value, list | tuple) else value

    head = json.dumps(describe(document), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 4)
    return compress(len(head).to_bytes(4, "little") + head + b"".join(blobs))


def compress(data: bytes) -> str:
    """`data` as gzip, in base64; the same every time."""
    return base64.b64encode(gzip.compress(data, LEVEL, mtime=0)).decode()
