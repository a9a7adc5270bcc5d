"""`fedsim.aggregators.apply` against the contract, and against NumPy."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim import aggregators
from fedsim.core.contracts import RootEvaluator
from fedsim.core.types import Aggregate, CohortReport, Variables

K, D = 7, 6
RNG = np.random.default_rng(0)
UPDATES = RNG.normal(size=(K, D)).astype(np.float32)
NUM_EXAMPLES, LOSSES = RNG.integers(1, 50, K), RNG.gamma(2.0, size=K).astype(np.float32)
ROOT_LOSSES, ROOT_UPDATE = RNG.gamma(2.0, size=K).astype(np.float32), RNG.normal(size=D).astype(np.float32)
VALID = np.arange(K) != 3
KEY = jax.random.key(5)
PRE_AGGREGATORS = {"arc", "bucketing", "clipping", "nnm"}
NAMES = sorted(set(aggregators.__all__) - PRE_AGGREGATORS - {"apply", "from_weights"})
RULES = [getattr(aggregators, name)() for name in NAMES]
RULES += [aggregators.arfl(source="root"), aggregators.norm_clipping(noise_std=0.1, delta=1e-3, threshold=1.0)]


@pytest.mark.parametrize("rule", RULES)
def test_rules_are_called_as_the_contract_says(rule):
    """The rule's `init` and `measure`, and the arguments of `aggregate`; rules run in test_equivariance."""
    updates = Variables(jnp.where(VALID[:, None], UPDATES, 0))
    losses = jnp.where(VALID, LOSSES, jnp.nan)
    report = CohortReport(jnp.arange(K), jnp.asarray(NUM_EXAMPLES, jnp.int32), losses, updates, jnp.asarray(VALID))
    if rule.measure is not None:
        root = RootEvaluator(lambda updates: jnp.asarray(ROOT_LOSSES), lambda: Variables(jnp.asarray(ROOT_UPDATE)))
        report = report._replace(measurements=rule.measure(root, report))
    calls = []

    def aggregate(*arguments):
        calls.append(arguments)
        return Aggregate(Variables(jnp.arange(D, dtype=jnp.float32)), jnp.full(K, 1 / K), {"info": KEY}), arguments[0]

    result = aggregators.apply(
        rule._replace(aggregate=aggregate),
        UPDATES,
        num_examples=NUM_EXAMPLES,
        losses=LOSSES,
        valid=VALID,
        root_losses=ROOT_LOSSES,
        root_update=ROOT_UPDATE,
        key=KEY,
    )
    state = rule.init(Variables(jnp.zeros(D)), report.num_examples, losses)
    chex.assert_trees_all_equal(calls, [(state, report, KEY)])
    chex.assert_trees_all_equal(result, Aggregate(jnp.arange(D, dtype=jnp.float32), jnp.full(K, 1 / K), {"info": KEY}))


def test_matches_numpy():
    ordered = np.sort(UPDATES, axis=0)
    expected = {
        aggregators.fedavg(): UPDATES.mean(axis=0),
        aggregators.median(): np.median(UPDATES, axis=0),
        aggregators.trimmed_mean(num_byzantine=2): ordered[2:-2].mean(axis=0),
    }
    for rule, update in expected.items():
        np.testing.assert_allclose(aggregators.apply(rule, UPDATES).update, update, atol=1e-6)
    weighted = aggregators.apply(aggregators.fedavg(), UPDATES, num_examples=NUM_EXAMPLES)
    np.testing.assert_allclose(weighted.update, np.average(UPDATES, axis=0, weights=NUM_EXAMPLES), atol=1e-6)
    np.testing.assert_allclose(weighted.weights, NUM_EXAMPLES / NUM_EXAMPLES.sum(), atol=1e-6)


def test_accepts_lists_integers_pytrees_and_variables():
    expected = np.median(UPDATES, axis=0)
    rule = aggregators.median()
    np.testing.assert_allclose(aggregators.apply(rule, UPDATES.tolist()).update, expected)
    np.testing.assert_array_equal(aggregators.apply(rule, np.asarray([[1, 4], [2, 3]])).update, [1.5, 3.5])
    tree = {"a": UPDATES[:, :2], "b": [UPDATES[:, 2:].reshape(K, 2, 2)]}
    update = aggregators.apply(rule, tree).update
    np.testing.assert_allclose(update["a"], expected[:2])
    np.testing.assert_allclose(update["b"][0], expected[2:].reshape(2, 2))
    variables = aggregators.apply(rule, Variables(tree, {"count": np.arange(K)})).update
    np.testing.assert_allclose(variables.params["a"], expected[:2])
    assert variables.statistics["count"] == 3


def test_integers_are_aggregated_as_float32():
    updates = np.asarray([[1, 2049], [3, 2051], [5, 70_000]])
    update = aggregators.apply(aggregators.fedavg(), updates).update
    np.testing.assert_allclose(update, updates.mean(axis=0), rtol=1e-6)
    halves = aggregators.apply(aggregators.median(), UPDATES.astype(np.float16)).update
    assert (update.dtype, halves.dtype) == (np.float32, np.float16)


def test_numbers_of_examples_may_be_whole_floats_or_traced():
    expected = aggregators.apply(aggregators.fedavg(), UPDATES, num_examples=NUM_EXAMPLES).weights
    weigh = lambda numbers: aggregators.apply(aggregators.fedavg(), UPDATES, num_examples=numbers).weights
    for weights in (weigh(NUM_EXAMPLES.astype(float)), jax.jit(weigh)(NUM_EXAMPLES)):
        np.testing.assert_allclose(weights, expected)


def test_clients_with_nan_are_invalid():
    updates = UPDATES.copy()
    updates[2, 0] = np.nan
    result = aggregators.apply(aggregators.fedavg(), updates)
    np.testing.assert_allclose(result.update, np.delete(UPDATES, 2, axis=0).mean(axis=0), atol=1e-6)
    assert result.weights[2] == 0


def test_pre_aggregators_mix_before_the_rule():
    mean = aggregators.apply(aggregators.krum(), UPDATES, pre_aggregators=[aggregators.nnm(num_byzantine=0)])
    np.testing.assert_allclose(mean.update, UPDATES.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(mean.weights, 1 / K, atol=1e-6)


@pytest.mark.parametrize(
    ("rule", "updates", "arguments", "name"),
    [
        (aggregators.arfl(), UPDATES, {}, "losses"),
        (aggregators.arfl(source="root"), UPDATES, {}, "root_losses"),
        (aggregators.zeno(), UPDATES, {}, "root_losses"),
        (aggregators.zeno(), UPDATES, {"root_losses": LOSSES[:3]}, "root_losses"),
        (aggregators.fltrust(), UPDATES, {"root_losses": LOSSES}, "root_update"),
        (aggregators.median(), {"a": UPDATES, "b": UPDATES[:3]}, {}, "updates"),
        (aggregators.median(), 1.0, {}, "updates"),
        (aggregators.median(), UPDATES, {"num_examples": 3}, "num_examples"),
        (aggregators.median(), UPDATES, {"num_examples": NUM_EXAMPLES / NUM_EXAMPLES.sum()}, "num_examples"),
        (aggregators.median(), UPDATES, {"num_examples": [np.nan] * K}, "num_examples"),
        (aggregators.median(), UPDATES, {"valid": VALID[:2]}, "valid"),
    ],
)
def test_missing_or_misshapen_arguments_are_errors(rule, updates, arguments, name):
    with pytest.raises(ValueError, match=f"^{name}: must "):
        aggregators.apply(rule, updates, **arguments)


@pytest.mark.parametrize("name", ["median", "trimmed_mean", "meamed", "bulyan", "caf"])
def test_64_bit_mode_of_jax_changes_nothing(name):
    rule = getattr(aggregators, name)
    updates = {"w": np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)}
    expected = aggregators.apply(rule(), updates).update["w"]
    jax.config.update("jax_enable_x64", True)
    try:
        actual = aggregators.apply(rule(), updates).update["w"]
    finally:
        jax.config.update("jax_enable_x64", False)
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
