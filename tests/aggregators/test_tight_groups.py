"""Updates whose differences are small beside themselves: what float32 inner products lose is computed otherwise."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim.aggregators import multi_krum, rfa
from fedsim.core.trees import direct_distances
from tests.aggregators.test_aggregators import KEY, krum, report_of, weiszfeld

K = 20


def tight(seed: int, ratio: float, num_outliers: int, spread: float = 1e-4, size: int = 200):
    """Updates [K, size] around one of norm 1, `spread` apart, but for as tight outliers `ratio` times its opposite."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=size) / np.sqrt(size)
    updates = common + spread * rng.normal(size=(K, size)) / np.sqrt(size)
    outliers = rng.permutation(K)[:num_outliers]
    updates[outliers] *= -ratio
    return updates.astype(np.float32), outliers


@pytest.mark.parametrize(("f", "num_selected", "num_outliers"), [(8, 12, 5), (5, 5, 5), (10, 10, 9)])
def test_multi_krum_selects_in_a_tight_group_as_float64_does(f, num_selected, num_outliers):
    everybody, counts = np.ones(K, bool), np.arange(1, K + 1)
    rule = multi_krum(num_byzantine=f, num_selected=num_selected)
    weigh = jax.jit(lambda report: rule.aggregate((), report, KEY)[0].weights)
    for seed in range(6):
        updates, outliers = tight(seed, [10.0, 100.0][seed % 2], num_outliers)
        weights = weigh(report_of(updates, counts))
        expected = krum(updates.astype(np.float64), counts, everybody, f, num_selected)
        np.testing.assert_allclose(weights, expected, atol=1e-6)
        assert not np.asarray(weights)[outliers].any()


@pytest.mark.parametrize("num_iters", [4, 50])
def test_rfa_weighs_in_a_tight_group_as_float64_does(num_iters):
    rule, counts = rfa(num_iters=num_iters), np.arange(1, K + 1)
    weigh = jax.jit(lambda report: rule.aggregate((), report, KEY)[0].weights)
    for seed in range(6):
        updates, _ = tight(seed, [1.0, 100.0][seed % 2], 5)
        expected = weiszfeld(updates, counts, num_iters, 1e-5)
        np.testing.assert_allclose(weigh(report_of(updates, counts)), expected, atol=1e-5)


@pytest.mark.parametrize(("make", "place"), [(multi_krum, "pairwise"), (rfa, "hull")])
def test_ordinary_updates_are_weighed_by_inner_products_alone(make, place, monkeypatch):
    """Their bits stay what they are, also where another run in lockstep has a tight group."""
    rng, counts, rule = np.random.default_rng(0), np.arange(1, K + 1), make()
    ordinary, lost = report_of(rng.normal(size=(K, 200)), counts), report_of(tight(0, 1.0, 5)[0], counts)
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), ordinary, lost)

    def in_lockstep():
        return np.asarray(jax.jit(jax.vmap(lambda report: rule.aggregate((), report, KEY)[0].weights))(both))

    got = in_lockstep()
    monkeypatch.setattr(importlib.import_module(f"fedsim.aggregators.{place}"), "LOST", 0.0)  # nothing ever is
    without = in_lockstep()
    np.testing.assert_array_equal(got[0], without[0])
    assert (got[1] != without[1]).any()


@pytest.mark.parametrize("make", [multi_krum, rfa])
def test_an_attack_can_follow_the_gradient_of_a_rule(make):
    report, rule = report_of(tight(0, 100.0, 5, size=10)[0]), make()

    def length(updates):
        return jnp.sum(jnp.square(rule.aggregate((), report._replace(updates=updates), KEY)[0].update["a"]))

    gradient = jax.jit(jax.grad(length))(report.updates)["a"]
    assert np.isfinite(gradient).all()
    assert np.abs(gradient).max() > 0


def test_direct_distances_are_a_loop():
    updates = tight(0, 100.0, 5, size=30)[0]
    expected = np.square(np.float64(updates)[:, None] - np.float64(updates)[None]).sum(-1)
    pairs = np.random.default_rng(0).random(expected.shape) < 0.5
    pairs = pairs | pairs.T
    got = direct_distances(report_of(updates).updates, pairs)
    np.testing.assert_allclose(got, np.where(pairs, expected, 0.0), rtol=1e-5)


def test_their_gradient_is_that_of_a_loop():
    updates = jnp.asarray(tight(0, 100.0, 5, size=30)[0])
    pairs = np.random.default_rng(0).random((len(updates),) * 2) < 0.5
    pairs = pairs | pairs.T
    by_hand = lambda u: jnp.sum(jnp.where(pairs, jnp.sum(jnp.square(u[:, None] - u[None]), axis=-1), 0.0))
    got = jax.grad(lambda u: jnp.sum(direct_distances({"a": u}, pairs)))(updates)
    np.testing.assert_allclose(got, jax.grad(by_hand)(updates), rtol=1e-4, atol=1e-3)
