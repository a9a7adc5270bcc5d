"""Attacks on the honest clients' statistics against float64 oracles written from the papers."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import fedsim
from fedsim.attacks import alie, gaussian, inf, ipm, min_max, min_sum
from tests.attacks.contexts import KEY, MALICIOUS, VALID, first_update, forge, honest_rows, make_context, rows

ONE_HONEST = np.arange(8) != 3


@pytest.mark.parametrize("deviation", ["population", "sample"])
@pytest.mark.parametrize(("sign", "direction"), [("plus", 1), ("minus", -1)])
def test_alie(sign, direction, deviation):
    context = make_context()
    x = honest_rows(context)
    expected = x.mean(axis=0) + direction * 1.5 * x.std(axis=0, ddof=deviation == "sample")
    forged = forge(alie(z=1.5, sign=sign, deviation=deviation), context)
    np.testing.assert_allclose(forged, np.broadcast_to(expected, forged.shape), atol=1e-6)


def test_alie_may_know_the_malicious_clients_updates_only():
    context = make_context()
    own = rows(context.report.updates)[MALICIOUS & VALID]
    forged = forge(alie(z=1.5, knowledge="own"), context)
    np.testing.assert_allclose(forged, np.broadcast_to(own.mean(0) + 1.5 * own.std(0), forged.shape), atol=1e-6)
    others = jax.tree.map(lambda u: u.at[0].set(99.0), context.report.updates)  # client 0 is honest
    changed = context._replace(report=context.report._replace(updates=others))
    np.testing.assert_array_equal(forge(alie(z=1.5, knowledge="own"), changed), forged)
    default_z = forge(alie(), context)[0] - honest_rows(context).mean(0)
    z = default_z / honest_rows(context).std(0)  # of n and m, whatever is known
    np.testing.assert_allclose(forge(alie(knowledge="own"), context)[0], own.mean(0) + z * own.std(0), atol=1e-5)


@pytest.mark.parametrize(
    ("num_valid", "num_malicious"), [(50, 12), (51, 12), (20, 4), (100, 1), (10, 0), (3, 1), (9, 8), (8, 5)]
)
def test_alies_default_z_is_the_largest_undetected_one(num_valid, num_malicious):
    """z = Phi^-1((n - m - s) / (n - m)), s = floor(n/2 + 1) - m; 0 if that is not positive."""
    malicious, valid = np.arange(110) < num_malicious, np.arange(110) < num_valid
    rng = np.random.default_rng(1)
    updates = jnp.asarray(rng.normal(size=(110, 2)) * valid[:, None], jnp.float32)
    context = make_context()
    report = context.report._replace(updates=updates, valid=jnp.asarray(valid))
    forged, _ = alie().forge_updates((), context._replace(report=report, malicious=jnp.asarray(malicious)), KEY)
    needed = max(np.floor(num_valid / 2 + 1) - num_malicious, 1)
    z = max(norm.ppf((num_valid - num_malicious - needed) / (num_valid - num_malicious)), 0.0)
    x = np.asarray(updates, np.float64)[valid & ~malicious]
    np.testing.assert_allclose(forged[0], x.mean(axis=0) + z * x.std(axis=0), atol=1e-4)


def bisect_gamma(x, mean, p, is_allowed):
    """The largest gamma for which `is_allowed(mean + gamma p)`."""
    low, high = 0.0, 1.0
    while is_allowed(mean + high * p):
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if is_allowed(mean + middle * p) else (low, middle)
    return low


def direction(x, perturbation):
    mean = x.mean(axis=0)
    return {"unit": -mean / np.linalg.norm(mean), "sign": -np.sign(mean), "std": -x.std(axis=0)}[perturbation]


def distances(x):
    return np.linalg.norm(x[:, None] - x[None], axis=-1)


@pytest.mark.parametrize("perturbation", ["unit", "sign", "std"])
def test_min_max(perturbation):
    for seed in range(4):
        context = make_context(seed, scale=[1, 0.01, 100, 1][seed])
        x = honest_rows(context)
        p, bound = direction(x, perturbation), distances(x).max()
        gamma = bisect_gamma(
            x, x.mean(axis=0), p, lambda update, x=x, b=bound: np.linalg.norm(update - x, axis=1).max() <= b
        )
        forged = forge(min_max(perturbation=perturbation), context)
        expected = np.broadcast_to(x.mean(axis=0) + gamma * p, forged.shape)
        np.testing.assert_allclose(forged, expected, rtol=1e-4, atol=1e-5 * bound)


@pytest.mark.parametrize("bound", ["largest", "smallest"])
@pytest.mark.parametrize("perturbation", ["unit", "sign", "std"])
def test_min_sum(perturbation, bound):
    context = make_context(1)
    x = honest_rows(context)
    p, sums = direction(x, perturbation), (distances(x) ** 2).sum(axis=1)
    limit = sums.max() if bound == "largest" else sums.min()
    gamma = bisect_gamma(x, x.mean(axis=0), p, lambda update: (np.linalg.norm(update - x, axis=1) ** 2).sum() <= limit)
    forged = forge(min_sum(perturbation=perturbation, bound=bound), context)
    np.testing.assert_allclose(forged, np.broadcast_to(x.mean(axis=0) + gamma * p, forged.shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attack", [ipm(), alie(), alie(z=2.0), min_max(), min_max(perturbation="std"), min_sum()])
def test_one_honest_client_gives_a_multiple_of_its_update(attack):
    single = make_context(malicious=ONE_HONEST)
    x, forged = honest_rows(single), forge(attack, single)
    assert len(x) == 1
    factor = forged[0] @ x[0] / (x[0] @ x[0])
    np.testing.assert_allclose(forged, np.broadcast_to(factor * x, forged.shape), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in ("ipm", "alie", "min_max", "min_sum", "fang", "mimic")),
        ("fang", {"against": "krum"}),
        ("mimic", {"target": "fixed"}),
        *((name, {"num_strengths": 2}) for name in ("optimal_ipm", "optimal_alie")),
        ("ascent", {"num_steps": 1}),
    ],
)
def test_without_honest_clients_zeros_are_sent_and_nothing_is_learned(name, settings):
    context = make_context(malicious=np.ones(8, bool), rule=fedsim.aggregators.fedavg())
    variables = first_update(context)
    attack = getattr(fedsim.attacks, name)(**settings)
    state = jax.tree.map(lambda a: a + 1, attack.init(variables, context.report.num_examples))
    forge = jax.jit(lambda state: attack.forge_updates(state, context._replace(variables=variables), KEY))
    forged, next_state = forge(state)
    assert not rows(forged).any()
    chex.assert_trees_all_equal(next_state, state)


def test_integer_statistics_stay_integers():
    context = make_context()
    updates = context.report.updates | {"steps": jnp.asarray([4, 0, 4, 4, 0, 7, 0, 7])}
    context = context._replace(report=context.report._replace(updates=updates))
    for attack in (ipm(tau=1.0), alie(), min_max(), gaussian(std=3.0, center="update"), inf()):
        forged = attack.forge_updates((), context, KEY)[0]["steps"]
        assert forged.dtype == updates["steps"].dtype
    assert ipm(tau=1.0).forge_updates((), context, KEY)[0]["steps"][1] == -5


def test_gaussian_noise_is_independent_of_the_order_of_clients():
    malicious = np.ones(8, bool)
    context = make_context(malicious=malicious)
    updates = {"w": jnp.ones((8, 5000), jnp.float32)}
    context = context._replace(report=context.report._replace(updates=updates))
    for center, mean in (("zero", 0), ("update", 1), ("mean", 0)):  # no honest clients
        forged = rows(gaussian(std=2.0, center=center).forge_updates((), context, KEY)[0])
        assert abs(forged.mean(axis=1) - mean).max() < 5 * 2 / np.sqrt(5000)
        assert abs(forged.std(axis=1) - 2).max() < 5 * 2 / np.sqrt(2 * 5000)
        assert abs(np.corrcoef(forged) - np.eye(8)).max() < 5 / np.sqrt(5000)
    order = np.arange(8)[::-1]
    reordered = context._replace(report=jax.tree.map(lambda a: a[order], context.report))
    noise = gaussian(std=2.0).forge_updates((), reordered, KEY)[0]["w"]
    np.testing.assert_array_equal(noise[order], gaussian(std=2.0).forge_updates((), context, KEY)[0]["w"])
    honest = make_context()
    expected = honest_rows(honest).mean(axis=0)
    np.testing.assert_allclose(forge(gaussian(std=0.0, center="mean"), honest)[0], expected, atol=1e-6)


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_inf_has_no_finite_values(value):
    forged = forge(inf(value=value), make_context())
    assert not np.isfinite(forged).any()
    assert np.isnan(forged).all() == (value == "nan")
