"""Random numbers at some positions of a large array: those that JAX would draw there, without the others.

JAX draws the numbers of a key position by position, by Threefry with 20 rounds (Salmon et al., "Parallel random
numbers: as easy as 1, 2, 3", SC 2011, https://doi.org/10.1145/2063384.2063405).
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl, threefry2x32_p

from fedsim.core.types import Array


def check_key(key: Any) -> Array:
    """`key`, which may be an array of the old type. Raises `ValueError` if it is no key."""
    dtype = getattr(key, "dtype", None)
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or (dtype == np.uint32 and key.ndim == 1)):
        raise ValueError(f"key: must be a key of JAX, such as jax.random.key(0), got {key!r}".replace("\n", " "))
    return jnp.asarray(key)


def draws_by_threefry(key: Array) -> bool:
    """Whether `jax.random` draws float32 numbers for `key` position by position; so it does by default."""
    options: Any = jax.config
    by_position = options.jax_threefry_partitionable and not options.jax_enable_x64
    return by_position and str(jax.random.key_impl(key)) == "threefry2x32"


def draw_rows(draw: Callable[..., Array], key: Array, positions: Array, shape: tuple[int, ...] = ()) -> Array:
    """The rows `positions` [m] of `draw(key, (M, *shape))`, bit for bit, for any M up to 2^31.

    `draw` is a function of `jax.random` that uses its key only once, such as `normal` or `uniform`. Raises `ValueError`
    as `require_threefry` does.

    >>> import jax, jax.numpy as jnp
    >>> key, positions = jax.random.key(0), jnp.asarray([7, 2])
    >>> bool((draw_rows(jax.random.uniform, key, positions, (3,)) == jax.random.uniform(key, (9, 3))[positions]).all())
    True
    """
    require_threefry(key)
    make_row_key = lambda row: jax.random.wrap_key_data(jnp.append(jax.random.key_data(key), row), impl=_ROW_KEYS)
    return jax.vmap(lambda row: draw(make_row_key(row), shape))(positions.astype(jnp.uint32))


def split_rows(key: Array, positions: Array) -> Array:
    """The keys `positions` [m] of `jax.random.split(key, M)`, for any M up to 2^31.

    Raises `ValueError` as `require_threefry` does.
    """
    require_threefry(key)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, positions)


def require_threefry(key: Array) -> None:
    """Raises `ValueError` unless JAX draws the numbers of `key` each on its own, from the key and their index."""
    if not draws_by_threefry(key):
        raise ValueError(
            "random keys: must be threefry2x32 with jax_threefry_partitionable and without jax_enable_x64 to draw the "
            f"numbers of some examples only, got {jax.random.key_impl(key)}; unset JAX_DEFAULT_PRNG_IMPL, "
            "JAX_THREEFRY_PARTITIONABLE and JAX_ENABLE_X64"
        )


def flat_indices(row: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """The flat indices of row `row` [] uint32 of an array [M, *shape]: their high and low 32 bits, [*shape] each."""
    size = math.prod(shape)
    start_high, start_low = _multiply(row, jnp.uint32(size))
    low = start_low + jnp.arange(size, dtype=jnp.uint32).reshape(shape)
    return start_high + (low < start_low), low


def _multiply(a: Array, b: Array) -> tuple[Array, Array]:
    """High and low 32 bits of the product of two uint32 numbers."""
    a_high, a_low, b_high, b_low = a >> 16, a & 0xFFFF, b >> 16, b & 0xFFFF
    middle = a_high * b_low + (a_low * b_low >> 16)
    other_middle = a_low * b_high + (middle & 0xFFFF)
    return a_high * b_high + (middle >> 16) + (other_middle >> 16), a * b


def _random_bits(row_key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    """The bits that JAX's threefry with `jax_threefry_partitionable` gives the numbers of a row."""
    first, second, row = row_key
    high, low = threefry2x32_p.bind(first, second, *flat_indices(row, shape))
    return (high ^ low).astype(f"uint{bit_width}")


def _refuse(*args: object) -> Array:
    raise NotImplementedError("the key of a row can be used only once, to draw numbers")


_ROW_KEYS = define_prng_impl(  # data of a key: those of a threefry key, and the position of a row
    key_shape=(3,), seed=_refuse, split=_refuse, fold_in=_refuse, random_bits=_random_bits, name="row", tag="row"
)
