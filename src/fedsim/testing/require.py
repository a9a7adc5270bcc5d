"""`fedsim.core.require`, and comparisons of values that raise `AssertionError` with a message, too."""

import jax
import numpy as np

from fedsim.core.require import array, array_type, is_key, like, pair, shape, true
from fedsim.core.types import PyTree

__all__ = [
    "array", "array_type", "close", "finite", "like", "max_abs", "no_new_nan", "pair", "shape", "to_float64", "true",
]  # fmt: skip

RELATIVE, ABSOLUTE = 1e-4, 1e-5  # tolerated rounding errors; the absolute one is in units of a scale


def close(actual: PyTree, expected: PyTree, message: str, scale: float = 1.0) -> None:
    """Requires equality up to rounding errors; `scale` is the size of what the values were computed from."""
    try:
        like(actual, expected, "the value")
    except AssertionError as error:
        raise AssertionError(f"{message}: {error}") from None
    for a, b in zip(to_float64(actual), to_float64(expected), strict=True):
        if not np.allclose(a, b, RELATIVE, ABSOLUTE * scale, equal_nan=True):
            with np.errstate(invalid="ignore"):
                raise AssertionError(f"{message}: by up to {np.nanmax(np.abs(a - b)):.2g}")


def finite(tree: PyTree, name: str, hint: str = "") -> None:
    """Requires that no number is NaN or infinite."""
    true(all(np.isfinite(a).all() for a in to_float64(tree)), f"{name} must be finite{hint}")


def no_new_nan(after: PyTree, before: PyTree, name: str) -> None:
    """Requires that no number became NaN. Infinite ones may have a meaning, as the losses in ARFL's state."""
    is_new = [(np.isnan(a) & ~np.isnan(b)).any() for a, b in zip(to_float64(after), to_float64(before), strict=True)]
    true(not any(is_new), f"{name} must not become NaN")


def to_float64(tree: PyTree) -> list[np.ndarray]:
    """All leaves as float64, random keys as their bits."""
    return [
        np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf, np.float64) for leaf in jax.tree.leaves(tree)
    ]


def max_abs(tree: PyTree) -> float:
    """The largest absolute value, at least 1: a scale for `close`."""
    return max([1.0, *(float(np.max(np.abs(a), initial=0.0)) for a in to_float64(tree))])
