"""Updates with small differences: distances that are inaccurate from float32 inner products are computed directly."""

from fractions import Fraction
from functools import partial
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim import aggregators
from fedsim.aggregators import geometry, multi_krum, rfa
from fedsim.aggregators.geometry import pairwise_distances
from fedsim.core.reports import mask_nonfinite_updates
from fedsim.testing.reports import make_report
from tests.aggregators.test_aggregators import krum, weiszfeld
from tests.aggregators.test_robust import KEY, report_of, weights_of

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
    for seed in range(6):
        updates, outliers = tight(seed, [10.0, 100.0][seed % 2], num_outliers)
        weights = weights_of(rule, report_of(updates))
        expected = krum(updates.astype(np.float64), num_examples, all_valid, f, num_selected)
        np.testing.assert_allclose(weights, expected, atol=1e-6)
        assert not weights[outliers].any()


@pytest.mark.parametrize("num_iters", [4, 50])
def test_rfa_matches_float64_in_a_tight_group(num_iters):
    rule, num_examples = rfa(num_iters=num_iters), np.arange(1, K + 1)
    for seed in range(6):
        updates, _ = tight(seed, [1.0, 100.0][seed % 2], 5)
        expected = weiszfeld(updates, num_examples, num_iters, 1e-5)
        np.testing.assert_allclose(weights_of(rule, report_of(updates)), expected, atol=1e-5)


@pytest.mark.parametrize(("make_rule", "num_outliers"), [(partial(multi_krum, num_byzantine=12), 9), (rfa, 5)])
def test_ordinary_updates_use_inner_products_only(make_rule, num_outliers, monkeypatch):
    """Their bits do not change even if another run in lockstep has a tight group."""
    rng, rule = np.random.default_rng(0), make_rule()
    ordinary, tight_group = report_of(rng.normal(size=(K, 200))), report_of(tight(0, 1.0, num_outliers)[0])
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), ordinary, tight_group)

    def in_lockstep():
        return np.asarray(jax.jit(jax.vmap(lambda report: rule.aggregate((), report, KEY)[0].weights))(both))

    actual = in_lockstep()
    monkeypatch.setattr(geometry, "MIN_RELATIVE_DISTANCE", 0.0)  # never computes distances directly
    without = in_lockstep()
    np.testing.assert_array_equal(actual[0], without[0])
    assert (actual[1] != without[1]).any()


@pytest.mark.parametrize(
    ("rule", "float64_weights"),
    [
        (multi_krum(num_byzantine=8), lambda updates, m: krum(updates, m, np.ones(K, bool), 8, 12)),
        (rfa(num_iters=50), lambda updates, m: weiszfeld(updates, m, 50, 1e-5)),
    ],
    ids=["multi_krum", "rfa"],
)
def test_rules_have_the_derivative_of_float64(rule, float64_weights):
    """In a direction within the tight group, where a rule's weights come from distances that are computed again."""
    updates, outliers = tight(0, 100.0, 5, size=10)
    rng, num_examples = np.random.default_rng(1), np.ones(K)
    value, direction = rng.normal(size=10), rng.normal(size=updates.shape)
    direction[outliers] = 0

    def objective(updates):
        report = make_report(updates)
        weights = rule.aggregate((), report, KEY)[0].weights
        return jnp.asarray(value, jnp.float32) @ (weights @ updates)

    def float64(step):
        moved = updates + step * direction
        return value @ (float64_weights(moved, num_examples) @ moved)

    actual = np.vdot(jax.jit(jax.grad(objective))(jnp.asarray(updates)), direction)
    np.testing.assert_allclose(actual, (float64(1e-8) - float64(-1e-8)) / 2e-8, rtol=1e-2)


def test_gradient_of_distances_in_a_tight_group():
    """They are computed directly; far from most other updates, float32 has three digits of their derivative."""
    updates, outliers = tight(0, 100.0, 5, size=30)
    is_outlier = np.isin(np.arange(K), outliers)
    by_hand = lambda u: jnp.sum(jnp.square(u[:, None] - u[None]), axis=-1)
    for group, tolerance in ((is_outlier, 1e-3), (~is_outlier, 1e-5), (np.ones(K, bool), 1e-5)):
        pairs = group[:, None] & group[None, :]
        gradient = lambda distances, pairs=pairs: jax.grad(lambda u: jnp.sum(jnp.where(pairs, distances(u), 0.0)))
        actual = jax.jit(gradient(lambda u: pairwise_distances(make_report(u))))(updates)
        expected = gradient(by_hand)(updates)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("seed", range(5))
def test_identical_updates_are_equally_far_from_all_others(seed):
    rng = np.random.default_rng(seed)
    originals = rng.integers(0, 6, 12)
    updates = rng.integers(-9, 10, (6, 40)).astype(np.float32)[originals]
    distances = np.asarray(jax.jit(pairwise_distances)(make_report(updates)))
    np.testing.assert_array_equal(distances, distances.T)
    exact = np.square(updates[:, None].astype(float) - updates[None]).sum(axis=2)
    np.testing.assert_allclose(distances, exact, rtol=1e-5, atol=1e-4)
    for i, j in zip(*np.nonzero(originals[:, None] == originals[None, :]), strict=True):
        others = originals != originals[i]
        np.testing.assert_array_equal(distances[i, others], distances[j, others])
        assert distances[i, j] == 0


def exact_choices(rows, f):
    """The weights by each rule, from exact integers or fractions; of equal scores, the lower client id."""
    n = len(rows)
    distances = [[sum((a - b) ** 2 for a, b in zip(u, v, strict=True)) for v in rows] for u in rows]

    def lowest(scores, number):
        return sorted(range(n), key=lambda i: (scores[i], i))[:number]

    def share(kept):
        return [1 / len(kept) if i in kept else 0.0 for i in range(n)]

    def variance(kept):  # of two clients or one parameter, the only eigenvalue is the trace
        return sum(distances[i][j] for i in kept for j in kept)

    def diameter(kept):
        return max(distances[i][j] for i in kept for j in kept)

    scores = [sum(sorted(row)[: 1 + max(n - f - 2, 1)]) for row in distances]
    near = [lowest([(j != i, distances[i][j]) for j in range(n)], n - f) for i in range(n)]
    subsets = list(combinations(range(n), n - f))
    return {
        "krum": share(lowest(scores, 1)),
        "multi_krum": share(lowest(scores, n - f)),
        "mda": share(min(subsets, key=diameter)),
        "smea": share(min(subsets, key=variance)),
        "nnm": np.mean([share(kept) for kept in near], axis=0),
    }


@pytest.mark.parametrize(("num_clients", "size", "scale"), [(3, 3, 1), (6, 1, 1), (6, 1, 10)])
def test_ties_go_to_the_lower_client_id(num_clients, size, scale):
    """Distances of small integers are exact, and so are ties; tenths are ones only as far as float32 has them."""
    f, rng = (num_clients - 1) // 2, np.random.default_rng(num_clients)
    cohorts = [np.arange(num_clients * size).reshape(num_clients, size)] * (scale == 1)
    cohorts += [rng.integers(-9 * scale, 9 * scale, (num_clients, size)) for _ in range(40)]
    for cohort in cohorts:
        updates = (cohort / scale).astype(np.float32)
        expected = exact_choices([list(map(Fraction, row.tolist())) for row in updates], f)
        moved = [updates + 1e-5 * rng.normal(size=updates.shape) for _ in range(4 * (scale > 1))]
        others = [exact_choices(rows.tolist(), f) for rows in moved]
        for name, weights in expected.items():
            rule = getattr(aggregators, name)(num_byzantine=f)
            rule, stages = (aggregators.fedavg(), [rule]) if name == "nnm" else (rule, [])
            actual = aggregators.apply(rule, updates, pre_aggregators=stages).weights
            if all(np.array_equal(other[name], weights) for other in others):  # rounding does not matter
                np.testing.assert_allclose(actual, weights, atol=1e-6, err_msg=f"{name} {cohort.tolist()}")


distances_of = jax.jit(lambda report: pairwise_distances(mask_nonfinite_updates(report)))


@pytest.mark.parametrize("outlier", [1e6, 1e16, 1e30, np.inf])
def test_an_outlier_does_not_hide_the_distances_of_a_distant_group(outlier):
    """It must not become the point around which distances are computed."""
    updates = (1000 + np.random.default_rng(1).normal(size=(7, 50))).astype(np.float32)
    group = np.delete(updates, 2, axis=0).astype(float)
    updates[2] = outlier
    distances = np.asarray(distances_of(make_report(updates)))
    expected = np.square(group[:, None] - group).sum(axis=2)
    np.testing.assert_allclose(np.delete(np.delete(distances, 2, 0), 2, 1), expected, rtol=2e-6)
    assert np.array_equal(distances, distances.T)
    assert not distances.diagonal().any()
