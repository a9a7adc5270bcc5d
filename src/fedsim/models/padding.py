"""Zeros around images."""

from typing import Literal

import jax.numpy as jnp

from fedsim.core.types import Array

Padding = Literal["SAME", "VALID"]
Zeros = tuple[tuple[int, int], tuple[int, int]]  # (before, after) of rows and of columns
NONE: Zeros = ((0, 0), (0, 0))


def zeros_for(shape: tuple[int, ...], size: int, stride: int, padding: Padding) -> Zeros:
    """What `padding` asks for around x [B, H, W, C] of `shape`: with "SAME" there are ceil(H / stride) outputs."""
    if padding == "VALID":
        return NONE
    rows, columns = (max((-(-side // stride) - 1) * stride + size - side, 0) for side in shape[1:3])
    return (rows // 2, rows - rows // 2), (columns // 2, columns - columns // 2)


def padded(x: Array, zeros: Zeros) -> Array:
    """x [B, H, W, C] with `zeros` around it."""
    return x if zeros == NONE else jnp.pad(x, ((0, 0), *zeros, (0, 0)))
