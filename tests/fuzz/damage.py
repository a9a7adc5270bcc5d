"""Files as a bad disk, a bad copy or a hasty editor leaves them."""

import re
import shutil
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
NUMBERS = [
    b"0",
    b"-1",
    b"1",
    b"3",
    b"0.5",
    b"99999999999999999999",
    b"1e400",
    b"nan",
    b"null",
    b'"x"',
    b"[]",
    b"{}",
    b"",
]


def damaged(data: bytes, draw: Any) -> bytes:
    """`data` cut short, or with a byte, two pieces or a number changed."""
    kind = draw(st.sampled_from(["truncate", "flip", "swap", "number", "drop", "empty"]))
    size = len(data)
    if kind == "empty" or not size:
        return b""
    place = draw(st.integers(0, size - 1))
    if kind == "truncate":
        return data[:place]
    if kind == "flip":
        return data[:place] + bytes([data[place] ^ (1 << draw(st.integers(0, 7)))]) + data[place + 1 :]
    other = draw(st.integers(0, size - 1))
    low, high = sorted((place, other))
    if kind == "drop":
        return data[:low] + data[high:]
    if kind == "swap":
        length = min(draw(st.integers(1, 40)), high - low, size - high)
        first, second = data[low : low + length], data[high : high + length]
        return data[:low] + second + data[low + length : high] + first + data[high + length :]
    found = list(NUMBER.finditer(data))
    if not found:
        return data
    match = draw(st.sampled_from(found))
    return data[: match.start()] + draw(st.sampled_from(NUMBERS)) + data[match.end() :]


def damage(folder: Path, draw: Any) -> Path:
    """Deletes or damages a file of the folder; which one."""
    path = draw(st.sampled_from(sorted(path for path in folder.rglob("*") if path.is_file())))
    if draw(st.integers(0, 9)) == 0:
        path.unlink()
    else:
        path.write_bytes(damaged(path.read_bytes(), draw))
    return path


def fresh(source: Path, target: Path) -> Path:
    """A copy of the folder `source`, whatever was at `target` before."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
