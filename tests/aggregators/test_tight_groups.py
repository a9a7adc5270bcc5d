"""Updates with small differences: distances that are inaccurate from float32 inner products are computed directly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim.aggregators import geometry, multi_krum, rfa
from fedsim.aggregators.geometry import direct_distances, pairwise_distances
from fedsim.core.types import CohortReport
from tests.aggregators.test_aggregators import KEY, krum, report_of, weiszfeld

K = 20


def tight(seed: int, ratio: float, num_outliers: int, spread: float = 1e-4, size: int = 200):
    """Updates [K, size] close to one of norm 1, except for outliers, which are close to -`ratio` times it."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=size) / np.sqrt(size)
    updates = common + spread * rng.normal(size=(K, size)) / np.sqrt(size)
    outliers = rng.permutation(K)[:num_outliers]
    updates[outliers] *= -ratio
    return updates.astype(np.float32), outliers


@pytest.mark.parametrize(("f", "num_selected", "num_outliers"), [(8, 12, 5), (5, 5, 5), (10, 10, 9)])
def test_multi_krum_matches_float64_in_a_tight_group(f, num_selected, num_outliers):
    all_valid, num_examples = np.ones(K, bool), np.arange(1, K + 1)
    rule = multi_krum(num_byzantine=f, num_selected=num_selected)
    compute_weights = jax.jit(lambda report: rule.aggregate((), report, KEY)[0].weights)
    for seed in range(6):
        updates, outliers = tight(seed, [10.0, 100.0][seed % 2], num_outliers)
        weights = compute_weights(report_of(updates, num_examples))
        expected = krum(updates.astype(np.float64), num_examples, all_valid, f, num_selected)
        np.testing.assert_allclose(weights, expected, atol=1e-6)
        assert not np.asarray(weights)[outliers].any()


@pytest.mark.parametrize("num_iters", [4, 50])
def test_rfa_matches_float64_in_a_tight_group(num_iters):
    rule, num_examples = rfa(num_iters=num_iters), np.arange(1, K + 1)
    compute_weights = jax.jit(lambda report: rule.aggregate((), report, KEY)[0].weights)
    for seed in range(6):
        updates, _ = tight(seed, [1.0, 100.0][seed % 2], 5)
        expected = weiszfeld(updates, num_examples, num_iters, 1e-5)
        np.testing.assert_allclose(compute_weights(report_of(updates, num_examples)), expected, atol=1e-5)


@pytest.mark.parametrize("make_rule", [multi_krum, rfa])
def test_ordinary_updates_use_inner_products_only(make_rule, monkeypatch):
    """Their bits do not change even if another run in lockstep has a tight group."""
    rng, num_examples, rule = np.random.default_rng(0), np.arange(1, K + 1), make_rule()
    ordinary, tight_group = (
        report_of(rng.normal(size=(K, 200)), num_examples),
        report_of(tight(0, 1.0, 5)[0], num_examples),
    )
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), ordinary, tight_group)

    def in_lockstep():
        return np.asarray(jax.jit(jax.vmap(lambda report: rule.aggregate((), report, KEY)[0].weights))(both))

    actual = in_lockstep()
    monkeypatch.setattr(geometry, "MIN_RELATIVE_DISTANCE", 0.0)  # never computes distances directly
    without = in_lockstep()
    np.testing.assert_array_equal(actual[0], without[0])
    assert (actual[1] != without[1]).any()


@pytest.mark.parametrize("make_rule", [multi_krum, rfa])
def test_rules_are_differentiable(make_rule):
    report, rule = report_of(tight(0, 100.0, 5, size=10)[0]), make_rule()

    def squared_norm(updates):
        return jnp.sum(jnp.square(rule.aggregate((), report._replace(updates=updates), KEY)[0].update["a"]))

    gradient = jax.jit(jax.grad(squared_norm))(report.updates)["a"]
    assert np.isfinite(gradient).all()
    assert np.abs(gradient).max() > 0


def test_direct_distances_match_numpy():
    updates = tight(0, 100.0, 5, size=30)[0]
    expected = np.square(np.float64(updates)[:, None] - np.float64(updates)[None]).sum(-1)
    pairs = np.random.default_rng(0).random(expected.shape) < 0.5
    pairs = pairs | pairs.T
    actual = direct_distances(report_of(updates).updates, pairs)
    np.testing.assert_allclose(actual, np.where(pairs, expected, 0.0), rtol=1e-5)


def test_gradient_of_direct_distances():
    updates = jnp.asarray(tight(0, 100.0, 5, size=30)[0])
    pairs = np.random.default_rng(0).random((len(updates),) * 2) < 0.5
    pairs = pairs | pairs.T
    by_hand = lambda u: jnp.sum(jnp.where(pairs, jnp.sum(jnp.square(u[:, None] - u[None]), axis=-1), 0.0))
    actual = jax.grad(lambda u: jnp.sum(direct_distances({"a": u}, pairs)))(updates)
    np.testing.assert_allclose(actual, jax.grad(by_hand)(updates), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_identical_updates_are_equally_far_from_all_others(seed):
    rng = np.random.default_rng(seed)
    originals = rng.integers(0, 6, 12)
    updates = rng.integers(-9, 10, (6, 40)).astype(np.float32)[originals]
    ids = jnp.arange(12)
    report = CohortReport(ids, ids + 1, jnp.zeros(12), {"w": jnp.asarray(updates)}, ids >= 0)
    distances = np.asarray(jax.jit(pairwise_distances)(report))
    np.testing.assert_array_equal(distances, distances.T)
    exact = np.square(updates[:, None].astype(float) - updates[None]).sum(axis=2)
    np.testing.assert_allclose(distances, exact, rtol=1e-5, atol=1e-4)
    for i, j in zip(*np.nonzero(originals[:, None] == originals[None, :]), strict=True):
        others = originals != originals[i]
        np.testing.assert_array_equal(distances[i, others], distances[j, others])
        assert distances[i, j] == 0
