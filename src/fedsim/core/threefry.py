"""Random bits at some positions of a large array, without the others.

Threefry with 20 rounds: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011,
https://doi.org/10.1145/2063384.2063405. JAX draws arrays of a key from it, position by position. On a CPU it does so in
several passes over arrays of all positions; a plain expression is fused into whatever uses the bits.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fedsim.core.types import Array

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def draws_by_threefry(key: Array) -> bool:
    """Whether `jax.random` draws float32 numbers for `key` from `bits_at`; so it does by default."""
    options: Any = jax.config
    by_position = options.jax_threefry_partitionable and not options.jax_enable_x64
    return by_position and str(jax.random.key_impl(key)) == "threefry2x32"


def bits_at(key: Array, positions: Array) -> Array:
    """Elements `positions` [...] int32 of `jax.random.bits(key, (n,))`, [...] uint32, for any n above them.

    >>> import jax, jax.numpy as jnp
    >>> key = jax.random.key(0)
    >>> bool(bits_at(key, jnp.int32(7)) == jax.random.bits(key, (10,))[7])
    True
    """
    first, second = jax.random.key_data(key)
    keys = (first, second, first ^ second ^ jnp.uint32(PARITY))
    a, b = keys[0], positions.astype(jnp.uint32) + keys[1]
    for i in range(5):
        for rotation in ROTATIONS[i % 2]:
            a = a + b
            b = a ^ ((b << rotation) | (b >> (32 - rotation)))
        a, b = a + keys[(i + 1) % 3], b + keys[(i + 2) % 3] + jnp.uint32(i + 1)
    return a ^ b
