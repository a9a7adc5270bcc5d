"""Zero padding of images."""

from typing import Literal, TypeAlias

import jax.numpy as jnp

from fedsim.core.types import Array

Padding: TypeAlias = Literal["SAME", "VALID"]
PadWidths: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
"""(before, after) of the rows and of the columns."""
NO_PADDING: PadWidths = ((0, 0), (0, 0))


def compute_pad_widths(shape: tuple[int, ...], size: int, stride: int, padding: Padding) -> PadWidths:
    """Zeros around x [B, H, W, C] of `shape`; "SAME" gives ceil(H / stride) outputs per column."""
    if padding == "VALID":
        return NO_PADDING
    rows, columns = (max((-(-side // stride) - 1) * stride + size - side, 0) for side in shape[1:3])
    return (rows // 2, rows - rows // 2), (columns // 2, columns - columns // 2)


def pad(x: Array, widths: PadWidths) -> Array:
    """x [B, H, W, C] with zeros around each image."""
    return x if widths == NO_PADDING else jnp.pad(x, ((0, 0), *widths, (0, 0)))
