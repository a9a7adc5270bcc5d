"""Cohorts of large populations are those of `top_k` of uniforms, client by client."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim.core.draws import bits_at, draws_by_threefry
from fedsim.core.waves import MIN_CLIENTS_BY_BLOCKS, PART, sample_cohort


def by_top_k(key, num_examples, cohort_size):
    """The first of a stable sort: descending draws, then ascending ids."""
    draws = np.where(num_examples > 0, np.asarray(jax.random.uniform(key, num_examples.shape)), -1)
    return np.argsort(-draws, kind="stable")[:cohort_size]


@pytest.mark.parametrize("cohort_size", [1, 7])
@pytest.mark.parametrize("beyond", [0, 255, 2 * PART])
def test_cohorts_by_blocks_are_those_of_all_draws(cohort_size, beyond):
    """With parts and blocks that divide the population and that do not; uniforms of a million clients have ties."""
    num_clients = MIN_CLIENTS_BY_BLOCKS + beyond
    rng = np.random.default_rng(cohort_size)
    num_examples = np.where(rng.random(num_clients) < 0.4, 0, rng.integers(1, 9, num_clients)).astype(np.int32)
    sample = jax.jit(lambda key, num_examples: sample_cohort(key, num_examples, cohort_size))
    for seed in range(3):
        key = jax.random.key(seed)
        np.testing.assert_array_equal(sample(key, num_examples), by_top_k(key, num_examples, cohort_size))


def test_clients_without_examples_fill_a_cohort_in_the_same_order():
    """All other clients have the same draw, -1."""
    num_examples = np.zeros(MIN_CLIENTS_BY_BLOCKS + 300, np.int32)
    num_examples[[5, 25_000, MIN_CLIENTS_BY_BLOCKS + 299]] = 1
    key = jax.random.key(0)
    np.testing.assert_array_equal(sample_cohort(key, jnp.asarray(num_examples), 7), by_top_k(key, num_examples, 7))


def test_cohorts_of_a_batch_of_runs():
    num_examples = np.ones(MIN_CLIENTS_BY_BLOCKS + 17, np.int32)
    keys = jax.random.split(jax.random.key(1), 3)
    batch = jax.jit(jax.vmap(lambda key: sample_cohort(key, jnp.asarray(num_examples), 2)))(keys)
    np.testing.assert_array_equal(batch, [by_top_k(key, num_examples, 2) for key in keys])


def test_other_generators_draw_all_numbers():
    num_examples, key = np.ones(MIN_CLIENTS_BY_BLOCKS, np.int32), jax.random.key(0, impl="rbg")
    assert not draws_by_threefry(key)
    assert sample_cohort(key, jnp.asarray(num_examples), 1) == by_top_k(key, num_examples, 1)


def test_threefry_is_that_of_its_authors_and_of_jax():
    """The first known answer of Random123's `kat_vectors` for threefry2x32, 20 rounds; bits are both words' xor."""
    zero_key = jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32))
    assert int(bits_at(zero_key, jnp.int32(0))) == 0x6B200159 ^ 0x99BA4EFE
    key, positions = jax.random.key(7), np.asarray([999_999, 0, 5, 123_456])
    np.testing.assert_array_equal(bits_at(key, jnp.asarray(positions)), jax.random.bits(key, (10**6,))[positions])
