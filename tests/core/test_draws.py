"""Random numbers of selected examples against those that JAX draws for all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim.core.draws import draw_rows, flat_indices, split_rows

KEY = jax.random.key(11)
POSITIONS = jnp.asarray([0, 998, 3, 3, 511, 77])


@pytest.mark.parametrize("shape", [(), (8,), (16, 4, 1)])
@pytest.mark.parametrize("draw", [jax.random.normal, jax.random.uniform, jax.random.bits])
def test_rows_are_those_of_the_whole_draw(draw, shape):
    """Under a map over keys, too."""
    keys = jax.random.split(KEY, 2)
    rows = jax.jit(jax.vmap(lambda key: draw_rows(draw, key, POSITIONS, shape)))(keys)
    for key, key_rows in zip(keys, rows, strict=True):
        np.testing.assert_array_equal(key_rows, jax.jit(draw, static_argnums=1)(key, (1000, *shape))[POSITIONS])


def test_keys_are_those_of_the_whole_split():
    expected = jax.random.split(KEY, 1000)[POSITIONS]
    np.testing.assert_array_equal(jax.random.key_data(split_rows(KEY, POSITIONS)), jax.random.key_data(expected))


@pytest.mark.parametrize("shape", [(), (3,), (257, 255), (224, 224, 3), (65536,), (100_003,)])
def test_flat_indices_beyond_32_bits(shape):
    """Against Python's integers, up to row 2^31 - 1."""
    size = int(np.prod(shape, dtype=int))
    for row in (0, 1, 65535, 65536, 28_533, 42_949, 85_568, 2**31 - 1):
        high, low = map(np.asarray, jax.jit(flat_indices, static_argnums=1)(jnp.uint32(row), shape))
        assert high.shape == low.shape == shape
        expected = row * size + np.arange(size, dtype=np.uint64)
        np.testing.assert_array_equal((high.astype(np.uint64) << np.uint64(32) | low).ravel(), expected)


def test_other_random_numbers_are_refused():
    message = r"^random keys: must be threefry2x32 .*, got {}; unset JAX_DEFAULT_PRNG_IMPL, .* and JAX_ENABLE_X64$"
    with pytest.raises(ValueError, match=message.format("rbg")):
        draw_rows(jax.random.normal, jax.random.key(0, impl="rbg"), POSITIONS)
    for option in ("jax_threefry_partitionable", "jax_enable_x64"):
        before = jax.config.values[option]
        jax.config.update(option, not before)
        try:
            with pytest.raises(ValueError, match=message.format("threefry2x32")):
                split_rows(KEY, POSITIONS)
        finally:
            jax.config.update(option, before)


def test_a_key_of_a_row_draws_once():
    with pytest.raises(NotImplementedError, match="used only once"):
        draw_rows(jax.random.permutation, KEY, POSITIONS, 5)
