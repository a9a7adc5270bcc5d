"""Pixels of pictures, as Pillow decodes them; many of them as one array."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fedsim.datasets.natural_clients import append
from fedsim.datasets.portions import Spool
from fedsim.datasets.scales import PIXELS
from fedsim.errors import DataError, reason

GRAY_MODES = ("1", "L")  # of a picture; others of 8 bits are converted to RGB


def stack(name: str, images: Iterable[tuple[str, Callable[[], np.ndarray]]]) -> np.ndarray:
    """The images [M, height, width, channels]: of each what it is, for messages, and what decodes it.

    Raises `DataError` if one cannot be decoded, or shapes or types differ.
    """
    spool, types = Spool(), set()
    for what, decode in images:
        try:
            pixels = decode()
        except Exception as error:  # Pillow raises many types
            raise DataError(f"{name}: {what}: {reason(error).partition(' <')[0]}") from None
        types.add(pixels.dtype)
        spool = append(name, spool, pixels[None], what)
    if len(types) > 1 and not types <= PIXELS:
        raise DataError(f"{name}: images must have one type, got {', '.join(sorted(map(str, types)))}")
    return spool.array()


def decode(picture: Any, size: int | None = None) -> np.ndarray:
    """[height, width, channels], uint8 or, of pictures with more bits, uint16, int32 or float32.

    With `size`, of that height and width. Raises `ValueError` if there is no picture, or it has several frames or is
    partly transparent.
    """
    if picture is None:
        raise ValueError("must be there, got none")
    if (num_frames := getattr(picture, "n_frames", 1)) > 1 and picture.format != "MPO":  # a camera's: a preview
        raise ValueError(f"must be one picture, got {num_frames} frames; save these as files, or leave it out")
    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        is_16_bits = picture.mode not in ("I", "F") or (picture.mode == "I" and picture.format in ("PNG", "PPM"))
        picture = picture if size is None else picture.convert("F").resize((size, size))
        pixels = np.asarray(picture)
        if is_16_bits:  # bicubic resizing overshoots
            pixels = np.rint(pixels).clip(0, np.iinfo(np.uint16).max).astype(np.uint16)
        return pixels[..., None]
    has_alpha = picture.mode.lower().endswith("a") or "transparency" in picture.info
    if has_alpha and picture.convert("RGBA").getextrema()[3][0] < 255:
        raise ValueError('is partly transparent; put it on a background, or leave that out by .convert("RGB")')
    picture = picture.convert("L" if picture.mode in GRAY_MODES else "RGB")
    pixels = np.asarray(picture if size is None else picture.resize((size, size)))
    return pixels if pixels.ndim == 3 else pixels[..., None]
