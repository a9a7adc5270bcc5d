"""Rules that select or clip, against their papers' formulas in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim.aggregators import bulyan, centered_clipping, dnc, flame, krum, mda, norm_clipping, smea
from fedsim.core.types import CohortReport, Variables
from fedsim.errors import ConfigError

KEY = jax.random.key(0)


def report_of(updates, valid=None, num_examples=None) -> CohortReport:
    """By default client k has k + 1 examples."""
    k = len(updates)
    valid = np.ones(k, bool) if valid is None else np.asarray(valid)
    num_examples = np.arange(1, k + 1) if num_examples is None else np.asarray(num_examples)
    x = np.where(valid[:, None], updates, 0)
    tree = Variables({"a": x[:, :2], "b": x[:, 2:].reshape(k, 1, -1)}, {})
    return jax.tree.map(jnp.asarray, CohortReport(np.arange(k), num_examples, np.ones(k), tree, valid))


def flat(update) -> np.ndarray:
    return np.concatenate([np.asarray(update.params["a"]), np.asarray(update.params["b"]).reshape(-1)])


def result(rule, report, state=(), key=KEY):
    aggregate, state = jax.jit(rule.aggregate)(state, report, key)
    return flat(aggregate.update), np.asarray(aggregate.weights), state


def weights_of(rule, report) -> np.ndarray:
    return result(rule, report)[1]


def updates_of(seed, k=11, size=6):
    return np.random.default_rng(seed).normal(size=(k, size)).astype(np.float32).astype(np.float64)


def krum_order(x, who, f, minus=2, power=2):
    """The clients `who` in the order of their sums of distances^`power` to the len(who) - f - `minus` nearest."""
    score = {}
    for i in who:
        distances = sorted(np.linalg.norm(x[i] - x[j]) ** power for j in who if j != i)
        score[i] = sum(distances[: max(len(who) - f - minus, 1)])
    return sorted(who, key=lambda i: (score[i], i))


@pytest.mark.parametrize(
    ("neighbors", "power", "numbers"),
    [("n-f-2", "second", (2, 2)), ("n-f-1", "second", (1, 2)), ("n-f-2", "fourth", (2, 4))],
)
def test_krum_matches_its_formula(neighbors, power, numbers):
    valid = np.arange(11) != 4
    rule = jax.jit(
        lambda f, report: krum(num_byzantine=f, neighbors=neighbors, power=power).aggregate((), report, KEY)[0]
    )
    for seed in (10, 11, 14, 26, 40):  # in each, one of the settings changes the choice
        x = updates_of(seed)
        best = krum_order(x, np.flatnonzero(valid), 3, *numbers)[0]
        aggregate = rule(3, report_of(x, valid))
        np.testing.assert_array_equal(aggregate.weights, np.arange(11) == best)
        np.testing.assert_allclose(flat(aggregate.update), x[best], rtol=1e-6)


def bulyan_formula(x, who, f, beta):
    who, selected = list(who), []
    theta = len(who) - 2 * f
    while len(selected) < theta:
        selected.append(krum_order(x, who, f)[0])
        who.remove(selected[-1])
    num_kept = theta - 2 * f if beta == "n-4f" else theta
    columns = np.sort(x[selected], axis=0)
    order = np.argsort(np.abs(columns - np.median(columns, axis=0)), axis=0, kind="stable")[:num_kept]
    return np.take_along_axis(columns, order, axis=0).mean(axis=0)


@pytest.mark.parametrize("beta", ["n-4f", "n-2f"])
def test_bulyan_matches_its_formula(beta):
    valid = np.arange(14) != 4
    rule = jax.jit(lambda f, report: bulyan(num_byzantine=f, beta=beta).aggregate((), report, KEY)[0])
    for seed, f in enumerate([0, 1, 2, 2, 2, 50]):
        x = updates_of(seed, 14)
        aggregate = rule(f, report_of(x, valid))
        expected = bulyan_formula(x, np.flatnonzero(valid), min(f, 2), beta)  # 13 >= 4 f + 3
        np.testing.assert_allclose(flat(aggregate.update), expected, atol=1e-5)
        assert aggregate.weights[4] == 0
        assert float(jnp.sum(aggregate.weights)) == pytest.approx(1, abs=1e-5)


def clip(x, radius):
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return x * np.minimum(1, radius / norms)


def test_norm_clipping_matches_its_formula():
    x, valid = updates_of(0), np.arange(11) != 4
    x[2] *= 1e15
    update, weights, _ = result(norm_clipping(threshold=1.5), report_of(x, valid))
    np.testing.assert_allclose(update, clip(x, 1.5)[valid].mean(axis=0), atol=1e-6)
    factors = np.minimum(1, 1.5 / np.linalg.norm(x, axis=1)) * valid
    np.testing.assert_allclose(weights, factors / factors.sum(), atol=1e-6)
    unclipped, _, _ = result(norm_clipping(threshold=1e3), report_of(updates_of(0)))
    np.testing.assert_allclose(unclipped, updates_of(0).mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("setting", ["norm_clipping.threshold", "clipping.threshold", "centered_clipping.tau"])
def test_a_radius_that_is_0_in_float32_is_refused(setting):
    section, name = setting.split(".")
    server = {"aggregator": section} if section != "clipping" else {"pre_aggregators": [section]}
    with pytest.raises(ConfigError, match=rf"{setting}: must be .*, got 1e-50"):
        fedsim.load({"server": server, section: {name: 1e-50}})


def test_noise_has_the_configured_standard_deviation():
    """FLAME's is in units of the median norm."""
    x = np.tile(updates_of(0, 1, 40_000), (3, 1))
    for rule in norm_clipping(threshold=1e3, noise_std=0.3), flame(noise=0.3 / np.linalg.norm(x[0])):
        noise, other = (result(rule, report_of(x), key=jax.random.key(seed))[0] - x[0] for seed in range(2))
        assert noise.std() == pytest.approx(0.3, rel=0.03)  # 8 standard errors
        assert abs(np.corrcoef(noise, other)[0, 1]) < 0.03
        no_valid_clients, _, _ = result(rule, report_of(np.zeros((3, 6)), np.zeros(3, bool)))
        assert not no_valid_clients.any()


@pytest.mark.parametrize("num_iters", [1, 3])
def test_centered_clipping_matches_its_recursion_over_rounds(num_iters):
    rule, valid = centered_clipping(tau=1.5, num_iters=num_iters), np.arange(11) != 4
    state = rule.init(Variables({"a": np.zeros(2), "b": np.zeros((1, 4))}, {}), None, None)
    v = np.zeros(6)
    for seed in range(3):
        x = updates_of(seed) + 1
        x[3] = 1e12
        update, weights, state = result(rule, report_of(x, valid), state)
        for _ in range(num_iters):
            factors = np.minimum(1, 1.5 / np.linalg.norm(x - v, axis=1)) * valid
            v = v + (factors[:, None] * (x - v))[valid].sum(axis=0) / valid.sum()
        np.testing.assert_allclose(update, v, atol=1e-5)
        np.testing.assert_allclose(state, v, atol=1e-5)
        np.testing.assert_allclose(weights, factors / factors.sum(), atol=1e-5)
    no_valid_clients, _, after = result(rule, report_of(x, np.zeros(11, bool)), state)
    assert not no_valid_clients.any()
    np.testing.assert_array_equal(after, state)


@pytest.mark.parametrize(("f", "factor"), [(0, 1.0), (3, 1.0), (3, 1.5), (2, 0.5)])
def test_dnc_matches_its_formula(f, factor):
    valid, rule = np.arange(11) != 4, dnc(num_byzantine=f, filter_factor=factor)
    for seed in range(5):
        x = updates_of(seed)
        away = x[valid] - x[valid].mean(axis=0)
        scores = np.full(11, np.inf)
        scores[valid] = (away @ np.linalg.svd(away)[2][0]) ** 2
        kept = np.argsort(scores)[: 10 - int(factor * f)]
        update, weights, _ = result(rule, report_of(x, valid))
        np.testing.assert_allclose(weights, np.isin(np.arange(11), kept) / len(kept), atol=1e-6)
        np.testing.assert_allclose(update, x[kept].mean(axis=0), atol=1e-5)


def test_dnc_with_sampled_parameters_drops_colluding_clients():
    x = updates_of(0, 11, 2000)
    x[[1, 5, 7]] += 1
    weights = weights_of(dnc(num_byzantine=3, num_dims=200, num_iters=3), report_of(x))
    np.testing.assert_allclose(weights, ~np.isin(np.arange(11), [1, 5, 7]) / 8, atol=1e-6)
    drawn_anew = weights_of(dnc(num_byzantine=2, num_dims=5, num_iters=4), report_of(updates_of(0, 11, 200)))
    assert 0 < np.sum(drawn_anew > 0) < 9  # who is left in all iterations
    one_left = weights_of(dnc(num_byzantine=3, filter_factor=9.0), report_of(updates_of(0)))
    assert sorted(one_left) == [0] * 10 + [1]


@pytest.mark.parametrize("rule", [krum, bulyan, dnc, mda, smea])
def test_outliers_have_no_weight(rule):
    x = updates_of(0)
    x[[2, 6]] = [[1e9], [-2e9]]
    update, weights, _ = result(rule(num_byzantine=2), report_of(x))
    honest = np.delete(x, [2, 6], axis=0)
    assert (weights[[2, 6]] == 0).all()
    assert (update >= honest.min(axis=0) - 1e-5).all()
    assert (update <= honest.max(axis=0) + 1e-5).all()
