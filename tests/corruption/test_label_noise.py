"""Label noise: how many labels change, and to which classes."""

from contextlib import suppress

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

import fedsim
from fedsim import Callback, DataSpec
from fedsim.config.toml import parse
from fedsim.corruption import furthest_flipping, localized, pairflip, symmetric, targeted
from fedsim.engine import make_plan, run_plan
from fedsim.testing.tiny import join_clients
from tests.conftest import build_simulation

KEY = jax.random.key(5)
CLASSES, CLIENTS, SIZE = 5, 20, 1000
SPEC = DataSpec("vector", CLASSES, (1,), "float32")


def add_noise(corruption, num_corrupted=CLIENTS, spec=SPEC):
    """Labels before and after, [CLIENTS, SIZE], and the corrupted clients, [CLIENTS] bool."""
    y = np.random.default_rng(0).integers(0, spec.num_classes, CLIENTS * SIZE)
    data = join_clients(jnp.zeros((len(y), 1)), jnp.asarray(y), [SIZE] * CLIENTS)
    after = fedsim.corrupt(corruption, KEY, data, spec, num_corrupted)
    return y.reshape(CLIENTS, SIZE), np.asarray(after.y).reshape(CLIENTS, SIZE), np.asarray(after.corrupted)


def transitions(before, after):
    """Observed P(c -> d), [C, C]."""
    table = np.zeros((CLASSES, CLASSES))
    np.add.at(table, (before.ravel(), after.ravel()), 1)
    return table / table.sum(axis=1, keepdims=True)


EXPECTED = {
    "other": (symmetric(rate=0.4), 0.6 * np.eye(CLASSES) + 0.1 * (1 - np.eye(CLASSES))),
    "any": (symmetric(rate=0.4, new_label="any"), 0.6 * np.eye(CLASSES) + 0.08),
    "all": (symmetric(rate=1.0), (1 - np.eye(CLASSES)) / (CLASSES - 1)),
    "none": (symmetric(rate=0.0), np.eye(CLASSES)),
    "pairflip": (pairflip(rate=0.45), 0.55 * np.eye(CLASSES) + 0.45 * np.roll(np.eye(CLASSES), 1, axis=1)),
    "targeted": (targeted(source=3, target=1), np.eye(CLASSES)[[0, 1, 2, 1, 4]]),
    "targeted at a rate": (
        targeted(source=4, target=0, rate=0.3),
        np.eye(CLASSES) + np.outer([0, 0, 0, 0, 0.3], [1, 0, 0, 0, -1]),
    ),
    "localized": (localized(tau=1.0), np.full((CLASSES, CLASSES), 1 / CLASSES)),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_transition_probabilities(name):
    """Of 20,000 labels, 4,000 per class: within five standard deviations; probabilities of 0 and 1 are exact."""
    corruption, expected = EXPECTED[name]
    observed = transitions(*add_noise(corruption)[:2])
    assert (abs(observed - expected) <= 5 * np.sqrt(expected * (1 - expected) / 3900)).all()


def test_localized_noise_draws_a_rate_per_client():
    """From U(0.5, 1), over 20 clients; a resampled label is wrong with probability 1 - 1 / C."""
    before, after, _ = add_noise(localized(tau=0.5))
    rates = (before != after).mean(axis=1) / (1 - 1 / CLASSES)
    assert 0.42 < rates.min() < 0.65
    assert 0.85 < rates.max() < 1.08
    assert rates.mean() == pytest.approx(0.75, abs=5 * 0.5 / np.sqrt(12 * CLIENTS))
    more, fewer = add_noise(localized(tau=0.5), num_corrupted=12), add_noise(localized(tau=0.5), num_corrupted=5)
    np.testing.assert_array_equal(more[1][fewer[2]], fewer[1][fewer[2]])  # independent of the fraction


def test_symmetric_noise_with_two_classes_and_one():
    for classes in (1, 2):
        spec = DataSpec("vector", classes, (1,), "float32")
        before, after, _ = add_noise(symmetric(rate=1.0), spec=spec)
        np.testing.assert_array_equal(after, (before + 1) % classes)


def test_targeted_refuses_a_class_that_does_not_exist():
    targeted(source=0, target=4).validate(SPEC)
    with pytest.raises(ValueError, match="classes from 0 to 4, got 0, 5"):
        targeted(source=0, target=5).validate(SPEC)


def test_furthest_labels_have_the_smallest_logit():
    """Loss and gradient of softmax regression with these labels; others stay, and padding does not count."""
    rng = np.random.default_rng(0)
    x, mask = jnp.asarray(rng.normal(size=(9, 4)), jnp.float32), jnp.arange(9) < 7
    y = jnp.asarray([0, 1, 2, 3, 4, -1, -1, -1, -1], jnp.int32)
    spec = DataSpec("vector", CLASSES, (4,), "float32")
    task = furthest_flipping().change_task(fedsim.classification(nn.Dense(CLASSES), x[0]), spec)
    variables = jax.jit(task.init)(KEY)
    loss, gradient = jax.jit(jax.value_and_grad(lambda v: task.loss(v, x, y, mask, KEY)[0]))(variables)
    metrics = jax.jit(task.metrics)(variables, x, y, mask)
    kernel, bias = (np.asarray(variables.params[name], float) for name in ("kernel", "bias"))
    x = np.asarray(x[:7], float)
    logits = x @ kernel + bias
    labels = [
        label if label >= 0 else min(range(CLASSES), key=row.__getitem__)
        for label, row in zip(y[:7], logits, strict=True)
    ]
    errors = softmax(logits, axis=1) - np.eye(CLASSES)[labels]
    losses = -np.log(softmax(logits, axis=1))[np.arange(7), labels]
    np.testing.assert_allclose(loss, losses.mean(), rtol=1e-5)
    np.testing.assert_allclose(gradient.params["kernel"], x.T @ errors / 7, atol=1e-6)
    np.testing.assert_allclose(metrics.loss_sum, losses.sum(), rtol=1e-5)
    assert metrics.num_correct == sum(np.argmax(logits, axis=1) == labels)


def test_a_simulation_takes_furthest_labels():
    """Outside a trace, where it checks labels."""
    x, y = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32), np.asarray([0, 1, 2, 0, 1, 2])
    data = fedsim.from_arrays(x, y, np.repeat([0, 1], 3), x, y)
    train = fedsim.corrupt(furthest_flipping(), KEY, data.train, data.spec, 0, client_ids=[1])
    task = furthest_flipping().change_task(fedsim.classification(nn.Dense(3), x[0]), data.spec)
    rule = lambda hparams: fedsim.aggregators.fedavg()
    simulation = build_simulation(task, rule, cohort_size=2, batch_size=3, max_num_examples=3)
    assert simulation.init(KEY, train, fedsim.HParams(0.1)).round == 0


FURTHEST = """
data = {num_clients = 4, num_train = 200}
model.name = "logistic"
client = {batch_size = 50, learning_rate = 0.1, steps = 1}
corruption = {kind = "furthest_flipping", clients = [1]}
server = {aggregator = "fedavg", cohort_size = 4, num_rounds = 3, eval_every = 1}
[[sweep]]
corruption.kind = ["furthest_flipping", "none"]
"""


def test_furthest_labels_follow_the_model(tmp_path):
    """The third round from the model after two, client by client; a clean run beside it has another program."""
    plan, models, kept, gradients = make_plan(parse(FURTHEST)), {}, [], []

    class Keep(Callback):
        def after_evaluation(self, evaluation):
            kept.append(evaluation)
            for run, model in evaluation.models().items():
                models[run, evaluation.round] = model.params["Dense_0"]

    run_plan(plan, tmp_path / "furthest", [Keep()])
    for evaluation in kept:
        with suppress(RuntimeError):  # "Array has been deleted", rather than the models of a later round
            for run, model in evaluation.models().items():
                chex.assert_trees_all_equal(model.params["Dense_0"], models[run, evaluation.round])
        if not evaluation.is_last:
            with pytest.raises(RuntimeError, match="must be called before the next rounds start"):
                evaluation.states()
    before, after, clean = (jax.tree.map(np.float64, models[key]) for key in ((0, 2), (0, 3), (1, 3)))
    (data,) = plan.datasets.values()
    for client, (first, size) in enumerate(zip(data.train.offsets, data.train.num_examples, strict=True)):
        x, y = data.train.x[first : first + size].reshape(size, -1) / 255.0, data.train.y[first : first + size]
        logits = x @ before["kernel"] + before["bias"]
        y = np.argmin(logits, axis=1) if client == 1 else y
        gradients.append(x.T @ (softmax(logits, axis=1) - np.eye(10)[y]) / size)
    expected = before["kernel"] - 0.1 * np.mean(gradients, axis=0)
    np.testing.assert_allclose(after["kernel"], expected, atol=1e-6)
    assert abs(clean["kernel"] - expected).max() > 1e-3


def test_furthest_flipping_refuses_several_labels():
    with pytest.raises(ValueError, match=r"must have one label, got labels of shape \(6,\)"):
        furthest_flipping().validate(DataSpec("text", 7, (6,), "int8", (6,)))


def test_targeted_texts_have_no_success():
    """A text has several labels, so no class that the model could take it for."""
    x, y = jnp.zeros((4, 6)), jnp.asarray([[0, 1, 2, 3, 4, 5]] * 4)
    after = targeted(source=1, target=2).trigger(x, y, DataSpec("text", 7, (6,), "int8", (6,)))
    np.testing.assert_array_equal(after[1], y)
