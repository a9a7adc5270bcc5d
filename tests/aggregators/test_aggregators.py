"""Each robust rule against an independent computation in float64; the contract of all is in tests/testing."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage

from fedsim.aggregators import cfl, multi_krum, rfa
from fedsim.aggregators.cfl import bipartition
from fedsim.aggregators.geometry import cosine_similarities
from fedsim.core.trees import gram_matrix
from tests.aggregators.test_robust import KEY, krum_order, report_of, weights_of

rfa_of = cache(rfa)  # compiled once for each number of iterations


def weiszfeld(updates, prior, num_iters, eps, start=None):
    """The weights after `num_iters` iterations from the mean, or from the weights `start`."""
    weights = prior / prior.sum() if start is None else start
    for _ in range(num_iters):
        weights = prior / np.maximum(eps, np.linalg.norm(updates - weights @ updates, axis=1))
        weights = weights / weights.sum()
    return weights


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([(1, 4, "mean"), (2, 1, "zero"), (5, 1, "mean"), (5, 50, "zero"), (20, 4, "mean")]),
)
@settings(max_examples=30)
def test_rfa_matches_weiszfeld_in_float64(seed, program):
    (k, num_iters, start), rng = program, np.random.default_rng(seed)
    updates, num_examples = rng.normal(size=(k, 12)), rng.integers(1, 100, k)
    updates[0] *= 30
    np.testing.assert_allclose(
        weights_of(rfa_of(num_iters=num_iters, start=start), report_of(updates, num_examples=num_examples)),
        weiszfeld(updates, num_examples, num_iters, 1e-5, np.zeros(k) if start == "zero" else None),
        atol=2e-4,
    )


def krum(updates, num_examples, valid, f, num_selected):
    """The weights of Multi-Krum."""
    who = np.flatnonzero(valid)
    f = max((len(who) - 3) // 2, 0) if f is None else f
    chosen = krum_order(updates, who, f)[: max(len(who) - f if num_selected is None else num_selected, 1)]
    weights = np.zeros(len(updates))
    weights[chosen] = num_examples[chosen] / num_examples[chosen].sum()
    return weights


@jax.jit
def multi_krum_weights(f, num_selected, report):
    """With numbers that are traced, which are clamped to each round's clients."""
    return multi_krum(num_byzantine=f, num_selected=num_selected).aggregate((), report, KEY)[0].weights


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 3, 10]),
    st.sampled_from([None, 0, 1, 5, 50]),
    st.sampled_from([None, 1, 5]),
)
@settings(max_examples=60)
def test_multi_krum_matches_loops(seed, k, f, num_selected):
    rng = np.random.default_rng(seed)
    updates, num_examples, valid = rng.normal(size=(k, 6)), rng.integers(1, 100, k), rng.random(k) < 0.8
    actual = multi_krum_weights(f, num_selected, report_of(updates, valid, num_examples))
    if not valid.any():
        assert actual.sum() == 0
        return
    np.testing.assert_allclose(actual, krum(updates, num_examples, valid, f, num_selected), atol=1e-6)


@pytest.mark.parametrize("scale", [1e2, 1e5, 1e8])
def test_one_huge_update_does_not_affect_distances_between_others(scale):
    """Centered at the plain mean, which the huge update dominates, other distances would be lost in float32."""
    rng = np.random.default_rng(0)
    updates, num_examples, all_valid = 0.1 * rng.normal(size=(10, 200)), np.arange(1, 11), np.ones(10, bool)
    updates[0] *= 10 * scale
    updates[1] *= 10
    updates = updates.astype(np.float32).astype(np.float64)
    expected = krum(updates, num_examples, all_valid, 3, None)
    np.testing.assert_allclose(weights_of(multi_krum(num_byzantine=3), report_of(updates)), expected, atol=1e-6)
    np.testing.assert_allclose(
        weights_of(rfa(), report_of(updates)), weiszfeld(updates, num_examples, 4, 1e-5), atol=1e-4
    )


def test_multi_krum_breaks_ties_by_client_id():
    same = report_of(np.ones((4, 2)))._replace(client_ids=jnp.asarray([7, 2, 9, 4]))
    np.testing.assert_allclose(weights_of(multi_krum(num_byzantine=0, num_selected=2), same), [0, 1 / 3, 0, 2 / 3])


cosines_of = jax.jit(lambda updates: cosine_similarities(gram_matrix({"u": updates})))
bipartition_of = jax.jit(bipartition)


@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3, 5, 12]), st.booleans())
@settings(max_examples=60)
def test_bipartition_of_valid_clients_matches_scipy_single_linkage(seed, k, has_invalid):
    rng = np.random.default_rng(seed)
    similarity = np.asarray(cosines_of(jnp.asarray(rng.normal(size=(k, 3)), jnp.float32)))
    valid = rng.permutation(k) < (max(2, k - 2) if has_invalid else k)
    first, across = bipartition_of(jnp.asarray(similarity), jnp.asarray(valid))
    assert not np.any(first & ~valid)
    tree = linkage(1 - similarity[np.ix_(valid, valid)][np.triu_indices(valid.sum(), 1)], "single")
    groups, first = fcluster(tree, 2, "maxclust"), np.asarray(first)[valid]
    np.testing.assert_array_equal(first[:, None] == first[None], groups[:, None] == groups[None])
    assert float(across) == pytest.approx(1 - tree[-1, 2], abs=1e-5)


def test_cfl_keeps_the_larger_group_or_all_clients():
    direction, rule, keeps_all = np.eye(4)[0], cfl(), cfl(threshold=-1.0)
    updates = np.stack([direction, direction, direction, -direction, -direction])
    np.testing.assert_allclose(weights_of(rule, report_of(updates)), [1 / 6, 2 / 6, 3 / 6, 0, 0], atol=1e-6)
    np.testing.assert_allclose(weights_of(keeps_all, report_of(updates)), np.arange(1, 6) / 15, atol=1e-6)
    tie = report_of(np.stack([direction, direction, -direction, -direction]), num_examples=[1, 1, 5, 1])
    np.testing.assert_allclose(weights_of(rule, tie), [0, 0, 5 / 6, 1 / 6], atol=1e-6)  # the tie goes to more examples
    weighted = tie._replace(weights=jnp.asarray([0.4, 0.4, 0.1, 0.1]))  # or to more weight
    np.testing.assert_allclose(weights_of(rule, weighted), [0.5, 0.5, 0, 0], atol=1e-6)
    for opposite in np.random.default_rng(0).normal(size=(20, 4)):  # a cosine of -1, rounded
        pair = report_of(np.stack([opposite, -opposite]))
        assert (weights_of(keeps_all, pair) > 0).all()
