"""What all checks share: clauses by name, and comparisons that say in a sentence what is wrong."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.core.types import PyTree

Case = TypeVar("Case")

RELATIVE, ABSOLUTE = 1e-4, 1e-5  # rounding that is no difference; the absolute part in units of a scale
MAX_LENGTH = 300  # of another program's message


def check(clauses: Mapping[str, Callable[[Case], None]], make: Callable[[], Case], skip: Collection[str]) -> None:
    """Puts what `make` makes through `clauses`, but for those in `skip`; `AssertionError` at the first broken one."""
    skipped = {skip} if isinstance(skip, str) else set(skip)
    if unknown := sorted(skipped - set(clauses)):
        raise ValueError(f'no clause "{unknown[0]}"; there are {", ".join(clauses)}')
    case = make()
    for name, clause in clauses.items():
        if name in skipped:
            continue
        try:
            clause(case)
        except AssertionError as error:
            raise AssertionError(f"{name}: {_line(error)}") from None
        except Exception as error:  # whatever the thing itself does
            raise AssertionError(f"{name}: {type(error).__name__}: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:MAX_LENGTH]


def require(condition: Any, sentence: str) -> None:
    """Raises `AssertionError` with `sentence` where `condition` does not hold; unlike `assert` always."""
    if not bool(condition):
        raise AssertionError(sentence)


def require_like(got: PyTree, wanted: PyTree, what: str) -> None:
    """Requires the structure, shapes and dtypes of `wanted`."""
    if problem := unlike(got, wanted):
        raise AssertionError(f"{what}{problem}")


def unlike(got: PyTree, wanted: PyTree) -> str | None:
    """Where `got` has another structure, shape or dtype than `wanted`, in words; None where it has not."""
    structure, wanted_structure = str(jax.tree.structure(got)), str(jax.tree.structure(wanted))
    if structure != wanted_structure:
        return f" is a {structure}, not a {wanted_structure}"
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(wanted), strict=True):
        if kind(a) != kind(b):
            return f"{jax.tree_util.keystr(path)} is {kind(a)}, not {kind(b)}"
    return None


def kind(leaf: Any) -> str:
    """Its dtype and shape inside a compiled program."""
    dtype = leaf.dtype if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) else jnp.result_type(leaf)
    return f"{dtype}{list(jnp.shape(leaf))}"


def require_close(got: PyTree, wanted: PyTree, sentence: str, scale: float = 1.0) -> None:
    """Requires equality but for rounding; `scale` is the size of what the values were computed from."""
    require_like(got, wanted, f"{sentence}: it")
    for a, b in zip(numbers(got), numbers(wanted), strict=True):
        if not np.allclose(a, b, RELATIVE, ABSOLUTE * scale, equal_nan=True):
            with np.errstate(invalid="ignore"):
                raise AssertionError(f"{sentence}, by {np.nanmax(np.abs(a - b)):.2g}")


def require_finite(tree: PyTree, what: str) -> None:
    """Requires that no number is NaN or infinite."""
    require(all(np.isfinite(a).all() for a in numbers(tree)), f"{what} is not finite")


def require_no_new_nan(after: PyTree, before: PyTree, what: str) -> None:
    """Requires that no number became NaN. An infinite one may stand for something, as a loss in ARFL's state does."""
    new = [(np.isnan(a) & ~np.isnan(b)).any() for a, b in zip(numbers(after), numbers(before), strict=True)]
    require(not any(new), f"{what} became NaN")


def numbers(tree: PyTree) -> list[np.ndarray]:
    """All leaves as float64, random keys as their bits."""

    def one(leaf: Any) -> np.ndarray:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return np.asarray(leaf, np.float64)

    return [one(leaf) for leaf in jax.tree.leaves(tree)]


def largest(tree: PyTree) -> float:
    """The largest absolute value, at least 1: a scale for `require_close`."""
    return max([1.0, *(float(np.max(np.abs(a), initial=0.0)) for a in numbers(tree))])


def rows(tree: PyTree, which: Any) -> PyTree:
    """The rows `which` of all leaves [K, ...]."""
    return jax.tree.map(lambda a: a[which], tree)


def stacked(trees: list[PyTree]) -> PyTree:
    """Trees of one structure as one tree, with an axis in front."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)
