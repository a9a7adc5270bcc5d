"""Random damage to files, as by a failing disk, an interrupted copy or an editing mistake."""

import re
import shutil
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
NUMBERS = [*b'0 -1 1 3 0.5 99999999999999999999 1e400 nan null "x" [] {}'.split(), b""]


def damage_bytes(data: bytes, draw: Any) -> bytes:
    """`data` truncated, without a piece, or with a bit flipped, two pieces swapped or a number replaced."""
    kind = draw(st.sampled_from(["truncate", "flip", "swap", "number", "drop", "empty"]))
    size = len(data)
    if kind == "empty" or not size:
        return b""
    position = draw(st.integers(0, size - 1))
    if kind == "truncate":
        return data[:position]
    if kind == "flip":
        return data[:position] + bytes([data[position] ^ (1 << draw(st.integers(0, 7)))]) + data[position + 1 :]
    other = draw(st.integers(0, size - 1))
    low, high = sorted((position, other))
    if kind == "drop":
        return data[:low] + data[high:]
    if kind == "swap":
        length = min(draw(st.integers(1, 40)), high - low, size - high)
        first, second = data[low : low + length], data[high : high + length]
        return data[:low] + second + data[low + length : high] + first + data[high + length :]
    numbers = list(NUMBER.finditer(data))
    if not numbers:
        return data
    match = draw(st.sampled_from(numbers))
    return data[: match.start()] + draw(st.sampled_from(NUMBERS)) + data[match.end() :]


def damage_folder(folder: Path, draw: Any) -> Path:
    """Deletes or damages a random file of the folder; returns its path."""
    path = draw(st.sampled_from(sorted(path for path in folder.rglob("*") if path.is_file())))
    if draw(st.integers(0, 9)) == 0:
        path.unlink()
    else:
        path.write_bytes(damage_bytes(path.read_bytes(), draw))
    return path


def copy_folder(source: Path, target: Path) -> Path:
    """Replaces `target` by a copy of the folder `source`; returns `target`."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
