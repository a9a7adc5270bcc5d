"""AutoGM against its two alternating steps in float64, and against its objective."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedsim.aggregators import autogm
from tests.aggregators.test_aggregators import weiszfeld
from tests.aggregators.test_arfl import by_bisection
from tests.aggregators.test_robust import KEY, flat, report_of, updates_of
from tests.aggregators.test_tight_groups import tight

K, EPS = 9, 1e-6


def alternate(x, lam, num_iters, num_steps):
    weights = weiszfeld(x, np.ones(len(x)), num_steps, EPS)
    for _ in range(num_iters):
        alpha = by_bisection(np.linalg.norm(x - weights @ x, axis=1), np.ones(len(x)), lam)
        weights = weiszfeld(x, alpha, num_steps, EPS, weights)
    return weights


aggregate = jax.jit(lambda lam, report: autogm(lam=lam).aggregate((), report, KEY)[0])


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.05, 0.3, 1.0, 100.0]), st.booleans())
@settings(max_examples=20)
def test_matches_alternating_steps_in_float64(seed, lam, has_invalid):
    x = updates_of(seed, K)
    x[2] *= 30
    valid = (np.arange(K) != 4) | (not has_invalid)
    expected = np.zeros(K)
    expected[valid] = alternate(x[valid], lam, 10, 10)
    actual = aggregate(lam, report_of(x, valid))
    np.testing.assert_allclose(actual.weights, expected, atol=5e-4)
    np.testing.assert_allclose(flat(actual.update), np.asarray(actual.weights, np.float64) @ x, atol=1e-4)


def test_minimizes_the_objective():
    """Over z, with the optimal alpha for each z: L-BFGS from the result finds no lower value."""
    for seed, lam in [(0, 0.3), (1, 1.0)]:
        x = updates_of(seed, K)
        x[:3] += 4

        def objective(z, x=x, lam=lam):
            distances = np.linalg.norm(x - z, axis=1)
            alpha = by_bisection(distances, np.ones(K), lam)
            return alpha @ distances + lam * K / 2 * alpha @ alpha

        z = flat(aggregate(lam, report_of(x)).update).astype(np.float64)
        optimum = minimize(objective, z)
        assert objective(z) < objective(x.mean(axis=0)) - 1e-3
        assert objective(z) == pytest.approx(optimum.fun, abs=1e-4)


def test_matches_float64_in_a_tight_group():
    for seed, lam in [(0, 1.0), (1, 1e-4)]:
        x, outliers = tight(seed, 100.0, 5)
        actual = aggregate(lam, report_of(x))
        np.testing.assert_allclose(actual.weights, alternate(np.float64(x), lam, 10, 10), atol=1e-4)
        assert not np.asarray(actual.weights)[outliers].any()
