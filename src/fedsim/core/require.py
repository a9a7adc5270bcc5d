"""What the contracts require of types and shapes. Broken ones raise `AssertionError` with a message, always."""

from typing import Any

import jax
import jax.numpy as jnp

from fedsim.core.types import PyTree


def true(condition: Any, message: str) -> None:
    """Requires `condition`."""
    if not bool(condition):
        raise AssertionError(message)


def instance(value: Any, expected: Any, name: str, remedy: str = "") -> None:
    """Requires a value of the type `expected`, such as `Attack`."""
    true(isinstance(value, expected), f"{name} must be {type_name(expected)}, got {type(value).__name__}{remedy}")


def type_name(expected: Any) -> str:
    """The public name of a contract with its article, such as "a fedsim.Attack"."""
    module = expected.__module__.partition(".")[0]
    return f"{'an' if module == 'optax' else 'a'} {module}.{expected.__name__}"


def pair(result: Any, expected: str) -> tuple[Any, Any]:
    """Requires a pair, such as "(weights, next state)", which it returns."""
    is_pair = type(result) in (tuple, list) and len(result) == 2
    true(is_pair, f"the result must be {expected}, got {_got(result)}")
    first, second = result
    return first, second


def shape(leaf: Any, expected: tuple[int, ...], name: str) -> None:
    """Requires an array of this shape, of any dtype."""
    is_right = _is_array(leaf) and jnp.shape(leaf) == expected
    true(is_right, f"{name} must have shape {list(expected)}, got {_got(leaf)}")


def like(actual: PyTree, expected: PyTree, name: str) -> None:
    """Requires the structure, shapes and dtypes of `expected`."""
    structure, expected_structure = str(jax.tree.structure(actual)), str(jax.tree.structure(expected))
    true(structure == expected_structure, f"{name} must be a {expected_structure}, got a {structure}")
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(actual), jax.tree.leaves(expected), strict=True):
        array(a, array_type(b), f"{name}{jax.tree_util.keystr(path)}")


def is_key(leaf: Any) -> bool:
    """Whether it is an array of random keys."""
    return bool(jnp.issubdtype(getattr(leaf, "dtype", float), jax.dtypes.prng_key))


def integers(leaf: Any, name: str) -> None:
    """Requires an array of integers."""
    is_right = _is_array(leaf) and jnp.issubdtype(jnp.result_type(leaf), jnp.integer)
    true(is_right, f"{name} must be integers, got {_got(leaf)}")


def no_keys(tree: PyTree, name: str) -> None:
    """Requires arrays that can be padded and saved, without random keys."""
    true(not any(map(is_key, jax.tree.leaves(tree))), f"{name} must hold no random keys; keep jax.random.key_data(key)")


def array(leaf: Any, expected: str, name: str) -> None:
    """Requires dtype and shape, such as "float32[3, 2]"."""
    true(_is_array(leaf) and array_type(leaf) == expected, f"{name} must be {expected}, got {_got(leaf)}")


def array_type(leaf: Any) -> str:
    """Dtype and shape inside a compiled program, such as "float32[3, 2]"."""
    dtype = leaf.dtype if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) else jnp.result_type(leaf)
    return f"{dtype}{list(jnp.shape(leaf))}"


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") or isinstance(value, int | float)


def _got(value: Any) -> str:
    return array_type(value) if _is_array(value) else type(value).__name__
