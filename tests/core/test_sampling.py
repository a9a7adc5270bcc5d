"""Cohorts are those of `top_k` of uniforms, client by client."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim.core.waves import DRAWS_MULTIPLE, sample_cohort


def by_top_k(key, num_examples, cohort_size):
    """The first of a stable sort: descending draws, then ascending ids."""
    draws = np.where(num_examples > 0, np.asarray(jax.random.uniform(key, num_examples.shape)), -1)
    return np.argsort(-draws, kind="stable")[:cohort_size]


@pytest.mark.parametrize("num_clients", [10, DRAWS_MULTIPLE, 1_000_003])
def test_cohorts_are_those_of_exactly_as_many_draws(num_clients):
    """Of a batch of runs, too; uniforms of a million clients have ties. Clients without examples fill a cohort."""
    rng = np.random.default_rng(0)
    num_examples = np.where(rng.random(num_clients) < 0.4, 0, rng.integers(1, 9, num_clients)).astype(np.int32)
    keys = jax.random.split(jax.random.key(1), 3)
    batch = jax.jit(jax.vmap(lambda key: sample_cohort(key, jnp.asarray(num_examples), 9)))(keys)
    np.testing.assert_array_equal(batch, [by_top_k(key, num_examples, 9) for key in keys])
