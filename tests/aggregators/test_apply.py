"""`fedsim.aggregators.apply` against the contract, and against NumPy."""

import importlib
import pickle
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim import aggregators
from fedsim.config.kinds import AGGREGATORS
from fedsim.core.contracts import RootEvaluator
from fedsim.core.types import Aggregate, CohortReport, Variables

K, D = 7, 6
RNG = np.random.default_rng(0)
UPDATES = RNG.normal(size=(K, D)).astype(np.float32)
NUM_EXAMPLES, LOSSES = RNG.integers(1, 50, K), RNG.gamma(2.0, size=K).astype(np.float32)
ROOT_LOSSES, ROOT_UPDATE = RNG.gamma(2.0, size=K).astype(np.float32), RNG.normal(size=D).astype(np.float32)
VALID = np.arange(K) != 3
KEY = jax.random.key(5)
ARGUMENTS = {"num_examples": NUM_EXAMPLES, "losses": LOSSES, "root_losses": ROOT_LOSSES, "root_update": ROOT_UPDATE}
NAMES = ["fedavg", "arfl", "centered_clipping", "fltrust", "zeno"]  # with and without state, losses and root data
RULES = [aggregators.arfl(source="root"), *(getattr(aggregators, name)() for name in NAMES)]


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

    with jax.disable_jit():  # so that `calls` has values
        result = aggregators.apply(rule._replace(aggregate=aggregate), UPDATES, valid=VALID, key=KEY, **ARGUMENTS)
    state = rule.init(Variables(jnp.zeros(D)), report.num_examples, losses)
    chex.assert_trees_all_equal(calls, [(state, report, KEY)])
    chex.assert_trees_all_equal(result, Aggregate(jnp.arange(D, dtype=jnp.float32), jnp.full(K, 1 / K), {"info": KEY}))


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


@pytest.mark.parametrize("to_array", [np.asarray, jnp.asarray, lambda u: u.astype(">f4"), np.ndarray.tolist])
def test_a_list_of_clients_is_stacked(to_array):
    """As ByzFL takes updates; not a pytree of K leaves [d]."""
    expected = np.median(UPDATES, axis=0)
    for updates in ([to_array(u) for u in UPDATES], tuple(to_array(u) for u in UPDATES)):
        np.testing.assert_array_equal(aggregators.apply(aggregators.median(), updates).update, expected)
    clients = [{"w": u[:4].reshape(2, 2), "b": u[4:5]} for u in UPDATES]
    np.testing.assert_array_equal(aggregators.apply(aggregators.median(), clients).update["b"], expected[4:5])


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


@pytest.mark.parametrize(
    ("rule", "updates", "arguments", "name"),
    [
        (aggregators.median(), UPDATES * 1j, {}, "updates"),
        (aggregators.median(), np.ma.array(UPDATES, mask=UPDATES > 1), {}, "updates"),
        (aggregators.median(), [np.ma.array(u, mask=u > 1) for u in UPDATES], {}, "updates"),
        (aggregators.median(), UPDATES[:0], {}, "updates"),
        (aggregators.median(), [[1.0, 2.0], [3.0]], {}, "updates"),
        (aggregators.median(), [np.ones((3, 3))] * 4, {}, "updates"),  # clients or layers?
        (aggregators.fedavg(), UPDATES, {"num_examples": [3_000_000_000, *[1] * (K - 1)]}, "num_examples"),
        (aggregators.fedavg(), UPDATES, {"num_examples": [2**30] * K}, "num_examples"),
        (aggregators.fedavg(), UPDATES, {"num_examples": [-1, *[1] * (K - 1)]}, "num_examples"),
        (aggregators.fedavg(), UPDATES, {"num_examples": [2**70] * K}, "num_examples"),
        (aggregators.fedavg(), UPDATES, {"valid": np.arange(K)}, "valid"),
        (aggregators.median(), UPDATES, {"key": 0}, "key"),
        (aggregators.fltrust(), UPDATES, {"root_update": ROOT_UPDATE[:2]}, "root_update"),
        (aggregators.median, UPDATES, {}, "rule"),
        (aggregators.nnm(), UPDATES, {}, "rule"),
        (aggregators.fedavg(), UPDATES, {"weighting": "arfl"}, "weighting"),
        (aggregators.median(), UPDATES, {"pre_aggregators": aggregators.nnm()}, "pre_aggregators"),
        (aggregators.median(), UPDATES, {"pre_aggregators": [aggregators.nnm]}, "pre_aggregators"),
        (aggregators.krum(num_byzantine=K - 1), UPDATES, {}, "num_byzantine"),
        (aggregators.monna(client_id=K), UPDATES, {}, "client_id"),
        (fedsim.chain(aggregators.nnm(), aggregators.monna(client_id=K)), UPDATES, {}, "client_id"),
        (fedsim.layerwise(aggregators.monna(client_id=K)), UPDATES, {}, "client_id"),
        (aggregators.arfl(lam="auto", target=K + 1), UPDATES, {"losses": LOSSES}, "target"),
        (aggregators.arfl(), UPDATES, {}, "losses"),
        (aggregators.arfl(source="root"), UPDATES, {}, "root_losses"),
        (aggregators.zeno(), UPDATES, {"root_losses": LOSSES[:3]}, "root_losses"),
        (aggregators.fltrust(), UPDATES, {"root_losses": LOSSES}, "root_update"),
        (aggregators.median(), {"a": UPDATES, "b": UPDATES[:3]}, {}, "updates"),
        (aggregators.median(), 1.0, {}, "updates"),
        (aggregators.median(), UPDATES, {"num_examples": NUM_EXAMPLES / NUM_EXAMPLES.sum()}, "num_examples"),
        (aggregators.median(), UPDATES, {"num_examples": [np.nan] * K}, "num_examples"),
        (aggregators.median(), UPDATES, {"valid": VALID[:2]}, "valid"),
    ],
)
def test_missing_or_misshapen_arguments_are_errors(rule, updates, arguments, name):
    with pytest.raises(ValueError, match=f"^{name}: must "):
        aggregators.apply(rule, updates, **arguments)


def test_krum_keeps_an_update_of_a_client_that_reports_no_examples():
    nearest = int(aggregators.apply(aggregators.krum(), UPDATES).weights.argmax())
    result = aggregators.apply(aggregators.krum(), UPDATES, num_examples=np.arange(K) != nearest)
    np.testing.assert_array_equal(result.weights, np.arange(K) == nearest)
    np.testing.assert_array_equal(result.update, np.asarray(UPDATES, np.float32)[nearest])


def num_maps():
    return len(Path("/proc/self/maps").read_text().splitlines())


@pytest.fixture
def compiled():
    """The compilations so far."""
    events = []
    listen = lambda event, seconds, **_: events.append(event) if "backend_compile" in event else None
    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux only")
def test_many_calls_compile_once(compiled):
    """Each of 400 calls builds its rule anew, as in one line; the values of `lam` and `tau` differ."""

    def call_all(i):
        for name in AGGREGATORS:
            settings = {"arfl": {"lam": 0.5 + i}, "centered_clipping": {"tau": 0.5 + i}}.get(name, {})
            aggregators.apply(getattr(aggregators, name)(**settings), UPDATES, **ARGUMENTS)
        mixed = aggregators.apply(aggregators.fedavg(), UPDATES, pre_aggregators=[aggregators.nnm()])
        jax.block_until_ready(mixed)

    call_all(0)
    num_compiled, maps = len(compiled), num_maps()
    assert num_compiled > 0
    for i in range(1, 18):
        call_all(i)
    assert len(compiled) == num_compiled
    assert num_maps() <= maps + 10


def test_programs_inside_other_transformations_and_of_plugins(compiled):
    """Integers that are settings, gradients and plug-ins, without captured tracers and with a bounded cache."""
    trim = lambda f, u: aggregators.apply(aggregators.trimmed_mean(num_byzantine=f), u).update
    expected = np.stack([np.sort(UPDATES, axis=0)[f : K - f].mean(axis=0) for f in (1, 2)])
    with jax.checking_leaks():
        np.testing.assert_allclose(
            jax.jit(jax.vmap(trim, (0, None)))(jnp.asarray([1, 2]), UPDATES), expected, atol=1e-6
        )
    gradient = jax.grad(lambda u: aggregators.apply(aggregators.fedavg(), u).update.sum())
    np.testing.assert_allclose(gradient(UPDATES), 1 / K, rtol=1e-6)
    num_compiled = len(compiled)
    gradient(UPDATES)
    assert len(compiled) == num_compiled

    for weight in (0.5, 1.0):  # a plug-in is another one in each iteration, although its code is the same
        rule = aggregators.from_weights(lambda report, w=weight: w * report.valid / K)
        np.testing.assert_allclose(aggregators.apply(rule, UPDATES).weights, weight / K)
        num_compiled = len(compiled)
        aggregators.apply(rule, UPDATES)
        assert len(compiled) == num_compiled


@pytest.mark.parametrize(
    ("package", "name", "settings"),
    [
        ("aggregators", "krum", {"num_byzantine": -1}),
        ("aggregators", "krum", {"num_byzantine": 0.2}),
        ("aggregators", "krum", {"num_byzantine": "2"}),
        ("aggregators", "krum", {"num_byzantine": [1, 2]}),
        ("aggregators", "krum", {"num_byzantine": 2**40}),
        ("aggregators", "krum", {"neighbors": "n-f-3"}),
        ("aggregators", "rfa", {"eps": 0}),
        ("aggregators", "rfa", {"eps": np.float32(np.nan)}),
        ("aggregators", "rfa", {"num_iters": True}),
        ("aggregators", "norm_clipping", {"noise_std": np.inf}),
        ("aggregators", "arfl", {"lam": -1}),
        ("aggregators", "nnm", {"num_byzantine": -1}),
        ("attacks", "alie", {"z": -1}),
        ("corruption", "symmetric", {"rate": 1.5}),
        ("algorithms", "fedprox", {"mu": -1}),
        ("datasets", "dirichlet", {"alpha": 0}),
    ],
)
def test_settings_in_python_have_the_bounds_of_configurations(package, name, settings):
    """Each value is refused by `fedsim.load` as well, or would be by its type."""
    make = getattr(importlib.import_module(f"fedsim.{package}"), name)
    with pytest.raises(ValueError, match=f"^{next(iter(settings))}: must be .*, got "):
        make(*[None] * 3 * (package == "datasets"), **settings)
    assert pickle.loads(pickle.dumps(make)) is make


def test_settings_may_be_scalars_of_numpy_and_jax():
    expected = aggregators.apply(aggregators.krum(num_byzantine=2), UPDATES).weights
    for f in (np.int64(2), jnp.int32(2), 2.0):
        assert np.array_equal(aggregators.apply(aggregators.krum(num_byzantine=f), UPDATES).weights, expected)


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
