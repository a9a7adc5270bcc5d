"""CAF, SignGuard and FLAME against their steps in float64, with scikit-learn's clustering algorithms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import HDBSCAN, MeanShift, estimate_bandwidth
from sklearn.metrics.pairwise import cosine_distances

from fedsim.aggregators import caf, flame, signguard
from fedsim.aggregators.flame import _cosine_distances, majority_cluster
from fedsim.aggregators.geometry import top_eigenpair
from fedsim.aggregators.signguard import _sign_features, largest_cluster
from tests.aggregators.test_robust import KEY, clip, flat, report_of, result, updates_of
from tests.aggregators.test_tight_groups import tight

K = 11


def caf_formula(x, f):
    """Weights [n], computed from the full covariance [d, d]."""
    c, candidates = np.ones(len(x)), [(np.inf, np.full(len(x), 1 / len(x)))]
    while c.sum() > len(x) - 2 * f:
        weights = c / c.sum()
        away = x - weights @ x
        values, vectors = np.linalg.eigh((away * weights[:, None]).T @ away)
        candidates.append((values[-1], weights))
        t = (away @ vectors[:, -1]) ** 2
        c = c * np.maximum(1 - t / t[c > 0].max(), 0)
    return min(candidates, key=lambda candidate: candidate[0])[1]


caf_of = jax.jit(lambda f, report: caf(num_byzantine=f).aggregate((), report, KEY)[0])


@given(st.integers(0, 2**32 - 1), st.integers(0, 6), st.booleans())
@settings(max_examples=15)
def test_caf_matches_its_formula(seed, f, has_invalid):
    x = updates_of(seed, K)
    x[:2] *= 5
    valid = (np.arange(K) != 4) | (not has_invalid)
    actual = caf_of(f, report_of(x, valid))
    expected = np.zeros(K)
    expected[valid] = caf_formula(x[valid], min(f, (valid.sum() - 1) // 2))
    np.testing.assert_allclose(actual.weights, expected, atol=2e-4)
    np.testing.assert_allclose(flat(actual.update), expected @ x, atol=2e-3)


def test_caf_matches_float64_in_a_tight_group():
    for seed in range(3):
        x, outliers = tight(seed, 100.0, 4, size=30)
        actual = caf_of(5, report_of(x)).weights
        assert not np.asarray(actual)[outliers].any()
        np.testing.assert_allclose(actual, caf_formula(np.float64(x), 5), atol=2e-3)


@pytest.mark.parametrize(("scale", "outlier"), [(1.0, 1e10), (1.0, 1e15), (1e-6, 50.0), (1e-15, 50.0), (1e9, 50.0)])
def test_caf_does_not_depend_on_the_scale(scale, outlier):
    """Squares of the projections leave the range of float32."""
    x = updates_of(3, K)
    x[[1, 4]] *= outlier
    actual = caf_of(3, report_of(scale * x)).weights
    np.testing.assert_allclose(actual, caf_formula(scale * x, 3), atol=1e-5)


# SignGuard


def sign_features(x):
    shares = np.stack([(x > 0).mean(1), (x == 0).mean(1), (x < 0).mean(1)], axis=1)
    return shares / np.maximum(shares.max(axis=0), 1e-12)


def mean_shift(points, quantile):
    bandwidth = estimate_bandwidth(points, quantile=quantile)
    labels = MeanShift(bandwidth=bandwidth, cluster_all=False).fit(points).labels_
    return labels == np.argmax(np.bincount(labels[labels >= 0]))


cluster_of = jax.jit(largest_cluster)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.2, 0.3, 0.5]), st.booleans())
@settings(max_examples=10)
def test_largest_cluster_matches_scikit_learn(seed, quantile, has_invalid):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(16, 3)) * 0.3 + rng.choice([0, 1, 2], size=(16, 1), p=[0.6, 0.3, 0.1])
    valid = rng.random(16) < (0.8 if has_invalid else 1.0)
    valid[:10] = True  # a fifth of them are two: the bandwidth is not 0
    points = points.astype(np.float32).astype(np.float64)
    expected = np.zeros(16, bool)
    expected[valid] = mean_shift(points[valid], quantile)
    np.testing.assert_array_equal(cluster_of(jnp.asarray(points, jnp.float32), jnp.asarray(valid), quantile), expected)


def test_signguard_matches_its_formula():
    rule = signguard(share=1.0)
    valid = np.arange(K) != 4
    has_been_cut = 0
    for seed in range(3):
        x = updates_of(seed, K, 200) + 0.3
        x[[1, 6]] = [-x[1], 20 * x[6]]  # an outlier in its signs, and an outlier in its norm
        norms = np.linalg.norm(x, axis=1)
        median = np.median(norms[valid])
        chosen = valid & (norms >= 0.1 * median) & (norms <= 3 * median)
        chosen[valid] &= mean_shift(sign_features(x[valid]), 0.5)
        assert not chosen[[1, 6]].any()
        update, weights, _ = result(rule, report_of(x, valid))
        np.testing.assert_allclose(update, clip(x, median)[chosen].mean(axis=0), atol=1e-5)
        factors = np.minimum(1, median / norms) * chosen
        np.testing.assert_allclose(weights, factors / factors.sum(), atol=1e-5)
        has_been_cut += (factors[chosen] < 1).any()
    assert has_been_cut


def test_signguard_refuses_limits_that_no_norm_meets():
    with pytest.raises(ValueError, match=r"^lower: must be at most upper = 3, got 5$"):
        signguard(lower=5.0)
    jax.jit(lambda lower: signguard(lower=lower).aggregate((), report_of(updates_of(0, K)), KEY)[0])(2.0)


def test_signguard_samples_parameters_in_each_round():
    """The outlier differs in the signs of only half of the parameters, so a sample of 2 of 20 may miss it."""
    x = np.abs(updates_of(0, 7, 20)) + 1
    x[3, :10] *= -1
    rule = jax.jit(lambda key: signguard().aggregate((), report_of(x), key)[0].weights[3] > 0)
    kept = [bool(rule(jax.random.key(i))) for i in range(30)]
    assert 0 < sum(kept) < 20  # probability that both samples are in the other half: 9 / 38


# FLAME


def hdbscan(distances):
    """The cluster with the parameters of the paper and of other programs; a point counts as its own neighbor."""
    n = len(distances)
    candidates = HDBSCAN(
        min_cluster_size=n // 2 + 1, min_samples=2, metric="precomputed", allow_single_cluster=True, copy=True
    )
    return candidates.fit(distances).labels_ == 0


majority_of = jax.jit(majority_cluster)


@given(st.integers(0, 2**32 - 1), st.integers(3, 12))
@settings(max_examples=25)
def test_majority_cluster_matches_hdbscan(seed, num_valid):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(12, 4)) + 2 * rng.choice([-1, 1], size=(12, 1))
    distances = np.float64(np.float32(cosine_distances(points)))
    np.fill_diagonal(distances, 0)
    valid = rng.permutation(12) < num_valid
    expected = np.zeros(12, bool)
    expected[valid] = hdbscan(distances[np.ix_(valid, valid)])
    assert expected.sum() > num_valid / 2
    np.testing.assert_array_equal(majority_of(jnp.asarray(distances, jnp.float32), jnp.asarray(valid)), expected)


def test_flame_matches_its_formula():
    aggregate = jax.jit(lambda report: flame(noise=0.0).aggregate((), report, KEY)[0])
    valid = np.arange(K) != 4
    for seed in range(5):
        x = updates_of(seed, K) + 1
        x[[1, 6, 8]] *= [[-1e6], [-1], [3]]
        norms = np.linalg.norm(x, axis=1)
        median = np.median(norms[valid])
        chosen = np.zeros(K, bool)
        chosen[valid] = hdbscan(np.maximum(cosine_distances(x[valid]), 0))
        actual = aggregate(report_of(x, valid))
        np.testing.assert_allclose(flat(actual.update), clip(x, median)[chosen].mean(axis=0), atol=1e-5)
        factors = np.minimum(1, median / norms) * chosen
        np.testing.assert_allclose(actual.weights, factors / factors.sum(), atol=1e-5)


def test_flame_matches_float64_for_near_equal_updates():
    x, _ = tight(0, 1.0, 5, size=30)
    _, weights, _ = result(flame(noise=0.0), report_of(x))
    np.testing.assert_array_equal(weights > 0, hdbscan(np.maximum(cosine_distances(np.float64(x)), 0)))


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 7, 20]), st.sampled_from([0.5, 0.9, 1 - 1e-3]))
@settings(max_examples=10)
def test_top_eigenpair_matches_lapack(seed, size, ratio):
    vectors = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]
    matrix = 7 * (vectors * ratio ** np.arange(size)) @ vectors.T
    top = jax.jit(top_eigenpair)
    value, vector = top(jnp.asarray(matrix, jnp.float32))
    assert value == pytest.approx(7, rel=1e-5)
    assert abs(vectors[:, 0] @ np.float64(vector)) == pytest.approx(1, abs=1e-5)
    of_zero = top(np.zeros((size, size), np.float32))
    assert not np.any(of_zero[0])
    assert not np.any(of_zero[1])


def test_signs_are_counted_relative_to_valid_clients():
    x, valid = updates_of(0, K, 200), np.arange(K) != 4
    x[np.arange(K)[:, None] + 10 > np.arange(200)] = 0
    actual = _sign_features(report_of(x, valid), 1.0, KEY)
    np.testing.assert_allclose(np.asarray(actual)[valid], sign_features(x[valid]), rtol=1e-5)


def test_zero_updates_are_at_right_angles_to_all_others_in_flame():
    x = updates_of(0, K)
    x[[2, 5]] = 0
    actual = np.asarray(_cosine_distances(report_of(x), jnp.linalg.norm(jnp.float32(x), axis=1)))
    others = ~np.eye(K, dtype=bool)
    np.testing.assert_allclose(actual[others], cosine_distances(x)[others], atol=1e-5)
