"""Rules that measure on the server's root data, and these measurements, against loops in float64."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import softmax

import fedsim
from fedsim.aggregators import fltrust, zeno
from fedsim.config.toml import parse
from fedsim.core.contracts import Aggregator
from fedsim.core.local import LocalSGD
from fedsim.core.options import TrainingOptions
from fedsim.core.server import root_evaluator
from fedsim.core.types import Aggregate, Examples, Variables
from fedsim.engine import make_plan
from fedsim.engine.data import load_dataset
from fedsim.errors import ConfigError, DataError
from tests.aggregators.test_robust import KEY, report_of, result, updates_of
from tests.conftest import make_simulation


def test_fltrust_matches_its_formula():
    rule, valid = fltrust(), np.arange(11) != 4
    for seed in range(5):
        x, update = updates_of(seed), np.random.default_rng(seed + 100).normal(size=6)
        x[7] = 0
        tree = Variables({"a": jnp.float32(update[:2]), "b": jnp.float32(update[2:].reshape(1, -1))}, {})
        actual, weights, _ = result(rule, report_of(x, valid)._replace(measurements=tree))
        total, trusts = np.zeros(6), np.zeros(11)
        for k in np.flatnonzero(valid):
            if norm := np.linalg.norm(x[k]):
                trusts[k] = max(0, x[k] @ update / norm / np.linalg.norm(update))
                total += trusts[k] * np.linalg.norm(update) / norm * x[k]
        np.testing.assert_allclose(actual, total / trusts.sum(), rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(weights, trusts / trusts.sum(), rtol=2e-5, atol=1e-7)


def test_fltrust_skips_the_round_if_no_client_is_trusted():
    x = -np.abs(updates_of(0))
    tree = Variables({"a": jnp.ones(2), "b": jnp.ones((1, 4))}, {})
    actual, weights, _ = result(fltrust(), report_of(x)._replace(measurements=tree))
    np.testing.assert_array_equal(weights, 0)
    np.testing.assert_array_equal(actual, 0)


@pytest.mark.parametrize(("b", "rho"), [(3, 0.0), (3, 0.2), (0, 0.2), (10, 0.0)])
def test_zeno_matches_its_formula(b, rho):
    rule, valid = zeno(num_byzantine=b, rho=rho), np.arange(11) != 4
    for seed in range(3):
        x = updates_of(seed)
        losses = np.random.default_rng(seed + 50).gamma(2.0, size=11)
        losses[2] = np.inf
        report = report_of(x, valid)._replace(measurements=jnp.float32(losses))
        actual, weights, _ = result(rule, report)
        scores = {k: 1.0 - losses[k] - rho * (x[k] ** 2).sum() for k in np.flatnonzero(valid)}
        kept = sorted(scores, key=lambda k: (-scores[k], k))[: max(len(scores) - b, 1)]
        np.testing.assert_allclose(actual, x[kept].mean(axis=0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(weights, np.isin(np.arange(11), kept) / len(kept), rtol=1e-6)


def test_root_evaluator_matches_loops(dataset):
    simulation = make_simulation(dataset)
    variables = simulation.task.init(KEY)
    root = Examples(jnp.asarray(dataset.x_test[:10]), jnp.asarray(dataset.y_test[:10]))
    sgd = LocalSGD(simulation.task, optax.sgd(0.1), TrainingOptions(epochs=1, batch_size=10, max_num_examples=10))
    evaluator = root_evaluator(root, sgd, variables, KEY, loss_batch=4, width=2)
    moves = jax.tree.map(lambda a: 0.3 * jax.random.normal(KEY, (5, *a.shape)), variables)
    losses = jax.jit(evaluator.losses)(moves)

    x, y = np.asarray(root.x, np.float64), np.asarray(root.y)

    probabilities = lambda model: softmax(x @ np.float64(model["kernel"]) + np.float64(model["bias"]), axis=1)
    dense = lambda tree: next(iter(tree.params.values()))
    for k in range(5):
        moved = {name: np.asarray(dense(variables)[name] + dense(moves)[name][k]) for name in ("kernel", "bias")}
        assert losses[k] == pytest.approx(-np.log(probabilities(moved)[np.arange(10), y]).mean(), rel=1e-5)
    wrong = probabilities(dense(variables)) - np.eye(3)[y]  # one step on all ten examples
    update = dense(jax.jit(evaluator.train)())
    np.testing.assert_allclose(update["kernel"], -0.1 * x.T @ wrong / 10, atol=1e-6)
    np.testing.assert_allclose(update["bias"], -0.1 * wrong.mean(0), atol=1e-6)


@pytest.mark.parametrize(("rule", "trainings"), [(fltrust(), 1), (fedsim.chain(fltrust(), fltrust()), 1), (zeno(), 0)])
def test_the_server_trains_once_in_a_round_whatever_asks_for_it(rule, trainings, dataset, data, monkeypatch):
    """Also if an attack tries the rule out."""
    calls, train = [], LocalSGD.train
    monkeypatch.setattr(LocalSGD, "train", lambda self, *args, **kw: calls.append(args[1]) or train(self, *args, **kw))
    simulation = make_simulation(dataset, lambda hparams: rule, attack=lambda hparams: fedsim.attacks.optimal_ipm())
    state = jax.eval_shape(simulation.init, KEY, data, fedsim.HParams(0.1))
    jax.eval_shape(simulation.round, state, data, fedsim.HParams(0.1))
    assert sum(given.y.shape == simulation.root.y.shape for given in calls) == trainings


def test_simulation_passes_measurements_to_the_rule(dataset, data):
    """The update is the server's and the weights are a softmax of its root losses: both match direct computations."""

    def aggregate(state, report, key):
        update, losses = report.measurements
        return Aggregate(update, jax.nn.softmax(-losses)), state

    rule = Aggregator(
        lambda variables, num_examples, losses: (),
        aggregate,
        lambda state: None,
        measure=lambda root, report: (root.train(), root.losses(report.updates)),
    )
    simulation = make_simulation(dataset, lambda hparams: rule, client_width=2)
    hparams = fedsim.HParams(0.1)

    @jax.jit
    def one_round(data):
        state = simulation.init(KEY, data, hparams)
        return state, *simulation.round(state, data, hparams)

    before, after, record = one_round(data)
    root = jax.tree.map(jnp.asarray, simulation.root)
    mean_loss = lambda v: simulation.task.metrics(v, root.x, root.y, jnp.ones(10, bool)).loss_sum / 10
    assert mean_loss(after.variables) < mean_loss(before.variables)  # the server trained on its root data
    assert len(np.unique(np.asarray(record.weights))) == 5
    with pytest.raises(ValueError, match="root"):
        replace(simulation, root=None).round(before, data, hparams)


ROOT = "[server]\naggregator = 'zeno'\nnum_rounds = 2\n[data]\n"


def test_root_examples_belong_to_no_client():
    plain, config = (parse(f"[data]\n{more}").runs()[0] for more in ("", "root_examples = 100"))
    clean, kept = load_dataset(plain), load_dataset(config)
    assert len(kept.root.y) == 100
    assert kept.train.num_examples.sum() == clean.train.num_examples.sum() - 100
    as_rows = lambda x, y: sorted(map(tuple, np.column_stack([x.reshape(len(x), -1), y]).tolist()))
    together = as_rows(np.concatenate([kept.train.x, kept.root.x]), np.concatenate([kept.train.y, kept.root.y]))
    assert together == as_rows(clean.train.x, clean.train.y)
    assert clean.root is None
    np.testing.assert_array_equal(kept.x_test, clean.x_test)


def test_missing_root_data_is_an_error():
    with pytest.raises(ConfigError, match=r"^data\.root_examples: .*zeno.*got 0"):
        make_plan(parse(ROOT))
    with pytest.raises(DataError, match=r"^data\.root_examples: .*1438.*got 2000"):
        load_dataset(parse("data.root_examples = 2000\n").runs()[0])
    make_plan(parse(ROOT + "root_examples = 50\n"))
    make_plan(parse("[data]\nroot_examples = 50\n[arfl]\nsource = 'root'\n"))
