"""MDA and SMEA against all subsets in float64, one by one; FABA and MoNNA against their definitions."""

from functools import partial
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.aggregators import faba, mda, monna, smea, subsets
from fedsim.aggregators.geometry import pairwise_distances
from tests.aggregators.test_robust import KEY, flat, report_of, updates_of
from tests.aggregators.test_tight_groups import tight

K, F = 9, 3


@pytest.fixture(scope="module", autouse=True)
def _weak_bounds():
    """So that a batch of the few subsets here is neither all of them nor sure to have the best."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subsets, "SEARCH_BATCHES", (4, 2))
        patch.setattr(subsets, "NUM_POWER_STEPS", (1, 2))
        patch.setattr(subsets, "NUM_DIRECTIONS", 1)
        yield


def diameter(x):
    return max((np.linalg.norm(a - b) for a, b in combinations(x, 2)), default=0.0)


def top_eigenvalue(x):
    return np.linalg.eigvalsh(np.cov(x.T, bias=True))[-1]


def best(x, who, f, cost):
    """The subset of least cost; of equal ones, the first in lexicographic order."""
    size = len(who) - min(f, max((len(who) - 1) // 2, 0))
    return min(combinations(who, size), key=lambda kept: (round(cost(x[list(kept)]), 12), kept))


@jax.jit
def aggregate_both(report):
    return [rule(num_byzantine=F).aggregate((), report, KEY)[0] for rule in (mda, smea)]


@given(st.integers(0, 2**32 - 1), st.integers(0, K))
@settings(max_examples=15)
def test_best_subset_of_valid_clients(seed, num_valid):
    rng = np.random.default_rng(seed)
    x, valid = updates_of(seed, K), rng.permutation(K) < num_valid
    for result, cost in zip(aggregate_both(report_of(x, valid)), [diameter, top_eigenvalue], strict=True):
        if not num_valid:
            assert not flat(result.update).any()
            assert not np.any(result.weights)
            continue
        kept = list(best(x, np.flatnonzero(valid), F, cost))
        np.testing.assert_allclose(result.weights, np.isin(np.arange(K), kept) / len(kept), atol=1e-6)
        np.testing.assert_allclose(flat(result.update), x[kept].mean(axis=0), atol=1e-5)


def test_ties_keep_the_lower_ids():
    """All subsets that contain the same farthest pair have the same diameter."""
    x = np.zeros((5, 6))
    x[:, 0], x[:, 1] = [0, 10, 4, 5, 6], [0, 0, 4, -5, 4]
    aggregate = jax.jit(lambda report: mda(num_byzantine=1).aggregate((), report, KEY)[0].weights)
    for ids in ([0, 1, 2, 3, 4], [1, 0, 4, 3, 2], [9, 7, 2, 0, 5]):
        report = report_of(x)._replace(client_ids=jnp.asarray(ids))
        order = np.argsort(ids)
        kept = order[list(best(x[order], range(5), 1, diameter))]
        np.testing.assert_allclose(aggregate(report), np.isin(np.arange(5), kept) / 4, atol=1e-6)
    assert diameter(x[[0, 2, 3, 4]]) == diameter(x[[1, 2, 3, 4]])


@pytest.mark.parametrize(("rule", "cost"), [(mda, diameter), (smea, top_eigenvalue)])
def test_matches_float64_in_a_tight_group(rule, cost):
    aggregate = jax.jit(lambda report: rule(num_byzantine=2).aggregate((), report, KEY)[0].weights)
    for seed, num_outliers in [(0, 2), (1, 1)]:
        x, outliers = tight(seed, 100.0, num_outliers, size=20)
        x = np.delete(x, np.setdiff1d(np.arange(len(x)), outliers)[:10], axis=0)
        kept = best(np.float64(x), range(len(x)), 2, lambda rows: cost(1e3 * rows))
        np.testing.assert_allclose(aggregate(report_of(x)), np.isin(np.arange(len(x)), kept) / (len(x) - 2), atol=1e-6)


def test_lower_bounds_are_below_the_top_eigenvalue():
    """Also in tight groups, next to outliers, far from 0, and where a projected direction is nearly 0."""
    masks = subsets._masks(K, F)

    @jax.jit
    def bounds(report):
        bound = subsets._rayleigh_quotients(pairwise_distances(report), report.valid)
        return [jax.vmap(partial(bound, num_steps))(jnp.asarray(masks)) for num_steps in (1, 4)]

    for seed in range(20):
        rng = np.random.default_rng(seed)
        x, scale = rng.normal(size=(K, 20)), 10 ** rng.uniform(0, 4)
        cluster, is_far = rng.integers(0, 2, (K, 1)) * rng.normal(size=20), np.arange(K)[:, None] >= K - 2
        outliers, tight_groups = np.where(is_far, scale * x, x), cluster + x / scale
        next_to_two = np.where(is_far, 1e6 * x[:1], x * [[30.0], *[[1.0]] * (K - 1)])
        x = [outliers, x + scale * cluster, x + scale, tight_groups, next_to_two][seed % 5]
        x = x.astype(np.float32)
        largest = np.array([len(x[mask]) * top_eigenvalue(np.float64(x[mask])) for mask in masks])
        rough, close = bounds(report_of(x))
        assert (np.maximum(rough, close) <= (1 + 0.1 * subsets.BOUND_ROUNDING) * largest).all()
        assert np.median(close / largest) > 0.9


@pytest.mark.parametrize("rule", [mda, smea])
def test_too_many_subsets_are_an_error(rule):
    report = report_of(updates_of(0, 40))
    with pytest.raises(ValueError, match=rf"^num_byzantine: .* {subsets.MAX_SUBSETS:,} .* f = 18 of 40"):
        rule().aggregate((), report, KEY)
    with pytest.raises(ValueError, match=r"^num_byzantine: .* f = 5 of 40"):
        jax.eval_shape(rule(num_byzantine=5).aggregate, (), report, KEY)
    jax.eval_shape(rule(num_byzantine=4).aggregate, (), report, KEY)  # 91,390


def faba_formula(x, who, f):
    who = list(who)
    for _ in range(f):
        mean = x[who].mean(axis=0)
        who.remove(max(who, key=lambda i: np.linalg.norm(x[i] - mean)))
    return np.isin(np.arange(len(x)), who) / len(who)


def monna_formula(x, who, f, trusted):
    nearest = sorted(who, key=lambda i: np.linalg.norm(x[i] - x[trusted]))[: len(who) - f]
    return np.isin(np.arange(len(x)), nearest) / len(nearest)


def test_faba_and_monna_match_their_formulas():
    valid = np.arange(11) != 4
    who = np.flatnonzero(valid)
    weights_of = lambda rule, report: rule.aggregate((), report, KEY)[0].weights
    faba_of = jax.jit(lambda f, report: weights_of(faba(num_byzantine=f), report))
    monna_of = jax.jit(lambda f, client, report: weights_of(monna(num_byzantine=f, client_id=client), report))
    differences = 0
    for seed, f in enumerate([0, 1, 2, 3, 4, 4, 50]):
        x, used, trusted = updates_of(seed), min(f, 4), (seed + 5) % 11
        x[[0, 1]] *= 4
        expected = faba_formula(x, who, used)
        np.testing.assert_allclose(faba_of(f, report_of(x, valid)), expected, atol=1e-6)
        expected_of_monna = monna_formula(x, who, used, trusted)
        np.testing.assert_allclose(monna_of(f, trusted, report_of(x, valid)), expected_of_monna, atol=1e-6)
        differences += not np.array_equal(expected, expected_of_monna)
    assert differences
    assert not np.any(monna_of(2, 4, report_of(x, valid)))  # the trusted client has not answered
    ties = jnp.asarray([1, 0, 2])  # both outer ones are farthest, and nearest to the middle one
    for rule in (faba(num_byzantine=1), monna(num_byzantine=1, client_id=0)):
        weights = jax.jit(partial(weights_of, rule))(
            report_of(np.outer([0, 1, 2], np.ones(6)))._replace(client_ids=ties)
        )
        np.testing.assert_array_equal(weights, [0.5, 0.5, 0])
