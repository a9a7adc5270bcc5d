"""The coordinate-wise rules against their formulas in float64, one parameter at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.aggregators import meamed, median, trimmed_mean
from fedsim.core import sorting
from fedsim.core.types import CohortReport
from tests.aggregators.test_robust import KEY, report_of


def aggregate(num_byzantine, report):
    return jax.tree.map(np.asarray, compiled(num_byzantine, report))


@jax.jit
def compiled(num_byzantine, report):
    """Median, trimmed mean and meamed with traced f: updates [3, d] and weights [3, K]."""
    rules = median(), trimmed_mean(num_byzantine=num_byzantine), meamed(num_byzantine=num_byzantine)
    results = [rule.aggregate((), report, KEY)[0] for rule in rules]
    flat = [jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(r.update)]) for r in results]
    return jnp.stack(flat), jnp.stack([r.weights for r in results])


def formulas(values, f):
    """The three means of `values` [n]."""
    x, n = np.sort(np.asarray(values, np.float64)), len(values)
    f = min(f, (n - 1) // 2)
    nearest = sorted(x, key=lambda v: (abs(v - np.median(x)), v))[: n - f]
    return np.median(x), x[f : n - f].mean(), np.mean(nearest)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 5, 8]), st.sampled_from([0, 1, 2, 6, 50]), st.booleans())
@settings(max_examples=20)
def test_rules_match_formulas(seed, k, f, has_invalid):
    rng = np.random.default_rng(seed)
    updates = rng.integers(-50, 50, (k, 6)) + rng.permutation(1 << k)[:k, None] / (1 << k)
    valid = rng.random(k) < (0.7 if has_invalid else 1.0)
    actual, weights = aggregate(f, report_of(updates, valid))
    assert (weights[:, ~valid] == 0).all()
    if not valid.any():
        assert not np.any(actual)
        assert not np.any(weights)
        return
    expected = [formulas(column, f) for column in updates.astype(np.float32)[valid].T]
    np.testing.assert_allclose(actual, np.transpose(expected), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.sum(weights, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("huge", [1e3, 1e18, -1e18])
def test_f_outliers_have_no_weight(huge):
    rng = np.random.default_rng(0)
    updates = rng.normal(size=(9, 6))
    updates[[1, 4, 6]] = huge
    actual, weights = aggregate(3, report_of(updates))
    honest = np.delete(updates, [1, 4, 6], axis=0)
    assert (actual >= honest.min(axis=0) - 1e-6).all()
    assert (actual <= honest.max(axis=0) + 1e-6).all()
    np.testing.assert_allclose(actual[2], honest.mean(axis=0), atol=1e-5)  # meamed leaves out just these
    assert (weights[:, [1, 4, 6]] == 0).all()


def test_weights_are_shares_of_kept_parameters():
    updates = [[0, 0, 0, 0], [1, 1, 1, 9], [2, 2, 2, 2]]
    _, weights = aggregate(1, report_of(updates))
    np.testing.assert_allclose(weights[:2], [[0, 0.75, 0.25]] * 2, atol=1e-6)


def test_weights_are_those_of_updates_that_are_computed_in_the_same_program():
    """As behind clipping. A product that is rounded before it is compared, and not after, is another value."""
    updates = np.random.default_rng(0).normal(size=(9, 35)).astype(np.float32)
    factors = np.linspace(0.3, 0.9, 9, dtype=np.float32)[:, None]
    report = CohortReport(jnp.arange(9), jnp.ones(9, int), jnp.ones(9), jnp.asarray(updates), jnp.ones(9, bool))
    weights_of = lambda report: meamed(num_byzantine=3).aggregate((), report, KEY)[0].weights
    weights = jax.jit(lambda factors: weights_of(report._replace(updates=report.updates * factors)))(factors)
    distances = np.abs(updates * factors - np.median(updates * factors, axis=0)[None])
    is_kept = np.argsort(np.argsort(distances, axis=0), axis=0) < 6
    np.testing.assert_allclose(weights, is_kept.mean(axis=1) / 6, atol=1e-6)


def test_many_parameters_and_clients(monkeypatch):
    """Above the limits from which sorting goes by chunks and weights by a sample."""
    monkeypatch.setitem(sorting.MAX_FUSED_ROWS, "cpu", 8)
    updates = np.random.default_rng(0).normal(size=(12, 10_003)).astype(np.float32)
    actual, weights = aggregate(2, report_of(updates))
    x = np.sort(updates, axis=0)
    near = np.sort(np.abs(updates - np.median(updates, axis=0)[None]), axis=0)[9]
    kept = np.abs(updates - np.median(updates, axis=0)[None]) <= near[None]
    np.testing.assert_allclose(actual[0], np.median(x, axis=0), atol=1e-6)
    np.testing.assert_allclose(actual[1], x[2:10].mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(actual[2], np.where(kept, updates, 0).sum(axis=0) / 10, atol=1e-5)
    np.testing.assert_allclose(weights[1:], 1 / 12, rtol=0.1)


@pytest.mark.parametrize(
    ("rule", "num_kept"), [(median(), 1), (trimmed_mean(num_byzantine=2), 3), (meamed(num_byzantine=2), 5)]
)
def test_gradient_follows_kept_values(rule, num_kept):
    """As attacks see it that follow a rule's gradient."""
    updates = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)
    far = np.abs(
        updates - np.median(updates, axis=0)[None] if num_kept == 5 else np.argsort(np.argsort(updates, 0), 0) - 3
    )
    kept = far <= np.sort(far, axis=0)[num_kept - 1][None]

    report = report_of(updates)

    def first(updates):
        return jnp.sum(rule.aggregate((), report._replace(updates=updates), KEY)[0].update.params["a"])

    moved = jax.jit(jax.grad(first))(report.updates).params
    np.testing.assert_allclose(moved["a"], kept[:, :2] / num_kept, atol=1e-6)
    assert not np.any(moved["b"])


def test_integers_among_statistics_are_rounded():
    report = report_of(np.zeros((4, 3)))._replace(updates={"count": jnp.asarray([1, 2, 3, 4], jnp.int32)})
    update = jax.jit(median().aggregate)((), report, KEY)[0].update
    assert update["count"].dtype == jnp.int32
    assert int(update["count"]) == 2  # 2.5, to even
