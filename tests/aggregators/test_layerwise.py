"""A rule applied to each array by itself, against a loop over arrays that calls it on each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim import aggregators
from fedsim.aggregators import apply
from fedsim.engine import build
from fedsim.testing import check_aggregator

K = 7
SHAPES = {"Dense_0": (2, 4), "bias": (5,), "scale": ()}
TOTAL = sum(np.prod(shape) for shape in SHAPES.values())
RULES = {
    "krum": aggregators.krum(num_byzantine=2),
    "rfa": aggregators.rfa(),
    "arfl": aggregators.arfl(),
    "chain": fedsim.chain(aggregators.nnm(num_byzantine=2), aggregators.faba(num_byzantine=2)),
    "fltrust": aggregators.fltrust(),
}


def draw(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(K, *shape)).astype(np.float32) for name, shape in SHAPES.items()}


@pytest.mark.parametrize("name", RULES)
def test_matches_a_loop_over_arrays(name):
    rule, updates, server = RULES[name], draw(0), {name: update[0] for name, update in draw(1).items()}
    reports = {"num_examples": np.arange(1, K + 1), "losses": np.random.default_rng(2).gamma(2.0, size=K)}
    reports["valid"] = np.arange(K) != 3
    actual = apply(fedsim.layerwise(rule), updates, **reports, root_update=server)
    parts = {key: apply(rule, updates[key], **reports, root_update=server[key]) for key in SHAPES}
    for key, part in parts.items():
        np.testing.assert_allclose(actual.update[key], part.update, atol=1e-6)
    expected = sum(np.prod(shape) * np.asarray(parts[key].weights) for key, shape in SHAPES.items()) / TOTAL
    np.testing.assert_allclose(actual.weights, expected, atol=1e-6)


def report_of(tree):
    ids = jnp.arange(K)
    updates = fedsim.Variables(jax.tree.map(jnp.asarray, tree))
    return fedsim.CohortReport(ids, ids + 1, jnp.ones(K), updates, ids >= 0)


def init_of(rule, num_examples=None, losses=None):
    variables = fedsim.Variables({name: jnp.zeros(shape) for name, shape in SHAPES.items()})
    return rule.init(variables, jnp.ones(K) if num_examples is None else num_examples, losses)


def test_each_array_has_its_state_and_key():
    rule = fedsim.layerwise(aggregators.centered_clipping(tau=1.0))
    state, v = init_of(rule), {name: np.zeros(shape) for name, shape in SHAPES.items()}
    for tree in map(draw, range(3)):
        aggregate, state = jax.jit(rule.aggregate)(state, report_of(tree), jax.random.key(0))
        for name, u in tree.items():
            away = (u - v[name]).reshape(K, -1)
            factors = np.minimum(1, 1 / np.linalg.norm(away, axis=1))
            v[name] = v[name] + (factors @ away / K).reshape(v[name].shape)
            np.testing.assert_allclose(aggregate.update.params[name], v[name], atol=1e-5)
    noisy = fedsim.layerwise(aggregators.norm_clipping(noise_std=1.0))
    noise = apply(noisy, {"a": np.zeros((K, 50)), "b": np.zeros((K, 50))}).update
    assert abs(np.corrcoef(noise["a"], noise["b"])[0, 1]) < 0.6


def test_the_rule_of_a_configuration_is_layerwise_after_its_pre_aggregators():
    server = {"aggregator": "krum", "layerwise": True, "pre_aggregators": ["nnm"], "num_byzantine": 2, "cohort_size": K}
    (config,) = fedsim.load({"server": server}).runs()
    nnm, krum = aggregators.nnm(num_byzantine=2), aggregators.krum(num_byzantine=2)
    actual = apply(build.server(config)(build.hparams(config)), draw(0))
    expected = apply(fedsim.layerwise(krum), draw(0), pre_aggregators=[nnm])
    jax.tree.map(np.testing.assert_array_equal, actual, expected)
    assert not np.allclose(actual.weights, apply(krum, draw(0), pre_aggregators=[nnm]).weights)


def test_root_data_measure_the_update_of_one_array():
    """The loss is the squared distance of the model from one that is 1 everywhere."""
    updates = draw(0)

    def losses(updates):
        return sum(jnp.sum((leaf - 1) ** 2, axis=tuple(range(1, leaf.ndim))) for leaf in updates.params.values())

    root = fedsim.RootEvaluator(losses, None)
    rule, f = fedsim.layerwise(aggregators.zeno(num_byzantine=2, rho=0.0)), 2
    report = report_of(updates)
    report = report._replace(measurements=rule.measure(root, report))
    actual = jax.jit(lambda: rule.aggregate(init_of(rule), report, jax.random.key(0))[0].update.params)()
    for name, u in updates.items():
        best = np.argsort(((u - 1) ** 2).reshape(K, -1).sum(1))[: K - f]
        np.testing.assert_allclose(actual[name], u[best].mean(axis=0), atol=1e-6)


def test_arrays_without_weights_keep_their_values():
    """Clients that are alike in one array are sybils to FoolsGold there, but not in the other one."""
    distinct, alike = np.eye(K) + 0.1, np.ones((K, 2))
    result = apply(fedsim.layerwise(aggregators.foolsgold()), {"a": distinct, "b": alike})
    np.testing.assert_allclose(result.weights, apply(aggregators.foolsgold(), distinct).weights, atol=1e-6)
    assert np.any(result.update["a"])
    assert not np.any(result.update["b"])


def test_alpha_and_info():
    rule = fedsim.layerwise(aggregators.arfl(lam="auto"))
    alone = aggregators.arfl(lam="auto")
    examples, losses = jnp.arange(1, K + 1), jnp.asarray(np.random.default_rng(0).gamma(2.0, size=K))
    alpha = rule.client_weights(init_of(rule, examples, losses))
    np.testing.assert_allclose(alpha, alone.client_weights(init_of(alone, examples, losses)), atol=1e-6)
    info = apply(rule, draw(0), losses=losses, num_examples=examples).info
    assert set(info) == {f"lam/params/{name}" for name in SHAPES}


@pytest.mark.parametrize("rule", [aggregators.arfl(lam="auto"), aggregators.zeno(num_byzantine=1)])
def test_is_a_rule(rule):
    check_aggregator(fedsim.layerwise(rule), skip=("jit", "gradient"))
