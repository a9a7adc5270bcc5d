"""Local training algorithms against float64 loops over clients and rounds."""

from contextlib import nullcontext
from dataclasses import replace

import jax
import numpy as np
import pytest

from fedsim import HParams, LocalTraining, Variables
from fedsim.algorithms import ditto, fednova, fedprox, scaffold, worker_momentum
from fedsim.algorithms.fednova import effective_steps
from fedsim.config.kinds import KINDS
from fedsim.config.toml import parse
from fedsim.engine import build
from fedsim.engine.checks import check_inputs
from fedsim.errors import ConfigError
from tests.algorithms.reference import (
    NUM_EXAMPLES,
    RAGGED,
    RATE,
    Reference,
    cohort_weights,
    make_clients,
    simulate,
    to_vector,
)

TOLERANCE = {"rtol": 2e-4, "atol": 2e-5}


@pytest.fixture(scope="module")
def ragged():
    return make_clients(RAGGED)


STEP = {"corrects": "step", "weighting": "examples"}
"""As in flwrlabs/flower, baselines/niid_bench, where c - c_k follows the momentum and c is weighted as the model."""


PARTIAL = {"cohort_size": 3, "dropout_rate": 0.2}


@pytest.mark.parametrize(
    ("options", "settings", "excluded"),
    [({}, {}, 2), (PARTIAL, {}, 0), (PARTIAL, STEP, 0)],
    ids=["excluded", "partial", "step"],
)
def test_scaffold_follows_algorithm_1(options, settings, excluded, ragged):
    """Option II: the model, the clients' control variates and the server's, without excluded clients."""
    counts = np.where(np.arange(len(NUM_EXAMPLES)) < excluded, 0, ragged.train.num_examples)
    ragged = replace(ragged, train=ragged.train._replace(num_examples=counts))
    algorithm = {"algorithm": lambda hparams: scaffold(**settings)}
    momentum = 0.6 if settings else 0.0
    p, state, records = simulate(ragged, RAGGED, HParams(RATE, momentum=momentum or None), **algorithm, **options)
    reference, n = Reference(ragged, RAGGED), len(NUM_EXAMPLES) - excluded
    controls, control = np.zeros((len(NUM_EXAMPLES), len(p))), np.zeros(len(p))
    for clients, weights in cohort_weights(records):
        new_p, changes = p, []
        for i, weight in zip(clients, weights, strict=True):
            if settings:
                y = reference.train(i, p, momentum=momentum, shift=control - controls[i])
            else:
                y = reference.train(i, p, lambda g, _, i=i, c=control: g - controls[i] + c)
            change = -control + (p - y) / (reference.steps[i] * RATE)
            changes.append((i, change, weight * len(clients) if settings else 1.0))
            new_p = new_p + weight * (y - p)
        for i, change, weight in changes:
            controls[i] += change
            control = control + weight * change / n
        p = new_p
    np.testing.assert_allclose(to_vector(state.variables.params), p, **TOLERANCE)
    np.testing.assert_allclose(to_vector(state.client_states, batched=True), controls, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(to_vector(state.server_state), control, rtol=1e-3, atol=1e-4)


def test_fedprox_follows_algorithm_2(ragged):
    mu, make = 0.7, lambda hparams: fedprox(mu=hparams.settings["mu"])
    p, state, records = simulate(ragged, RAGGED, HParams(RATE, settings={"mu": mu}), algorithm=make, cohort_size=4)
    reference = Reference(ragged, RAGGED)
    for clients, weights in cohort_weights(records):
        start = p
        for i, weight in zip(clients, weights, strict=True):
            trained = reference.train(i, start, lambda g, w, start=start: g + mu * (w - start))
            p = p + weight * (trained - start)
    np.testing.assert_allclose(to_vector(state.variables.params), p, **TOLERANCE)


def test_ditto_follows_algorithm_1(ragged):
    """Personal models start where they are."""
    p, state, records = simulate(ragged, RAGGED, HParams(RATE), cohort_size=3, algorithm=lambda hparams: ditto(lam=0.4))
    reference, personal = Reference(ragged, RAGGED), np.tile(p, (len(NUM_EXAMPLES), 1))
    for clients, weights in cohort_weights(records):
        start = p
        for i, weight in zip(clients, weights, strict=True):
            personal[i] = reference.train(i, personal[i], lambda g, v, w=start: g + 0.4 * (v - w))
            p = p + weight * (reference.train(i, start) - start)
    np.testing.assert_allclose(to_vector(state.variables.params), p, **TOLERANCE)
    np.testing.assert_allclose(to_vector(state.client_states, batched=True), personal, **TOLERANCE)


def test_what_a_client_cannot_change_is_refused():
    local = LocalTraining(Variables({"w": 1.0}), 3, 0.1, lambda start, correct: start)
    elsewhere = Variables({"w": 2.0})
    assert local._replace(start=elsewhere).sgd() == LocalTraining(elsewhere, *local[1:]).sgd() == elsewhere
    for field in ("num_steps", "learning_rate", "momentum", "train"):
        with pytest.raises(TypeError, match=f"^LocalTraining: only start can be replaced, got {field}$"):
            local._replace(**{field: 5})
    with pytest.raises(TypeError, match=r"^start: must be Variables, got dict; use local\.start\._replace"):
        local.sgd(start={"w": 2.0})


@pytest.mark.parametrize("momentum", [None, 0.6])
def test_fednova_normalizes_by_effective_steps(momentum, ragged):
    """tau_eff is their weighted mean over the valid clients."""
    options = {"cohort_size": 4, "dropout_rate": 0.2, "algorithm": lambda hparams: fednova()}
    p, state, records = simulate(ragged, RAGGED, HParams(RATE, momentum=momentum), **options)
    reference, rho = Reference(ragged, RAGGED), momentum or 0.0
    # The gradient of a step has weight 1 in it and rho^n in the n-th step after it.
    a = np.asarray([sum(rho ** (j - i) for j in range(steps) for i in range(j + 1)) for steps in reference.steps])
    assert len(set(a)) == 3
    for clients, weights in cohort_weights(records):
        normalized = np.asarray([(reference.train(i, p, momentum=rho) - p) / a[i] for i in clients])
        p = p + (weights @ a[clients]) * (weights @ normalized)
    np.testing.assert_allclose(to_vector(state.variables.params), p, **TOLERANCE)


@pytest.mark.parametrize("momentum", [0.0, 0.6, 0.9, 0.99, 0.999, 0.999999, 1 - 2**-24])
def test_effective_steps_match_float64_for_all_momenta(momentum):
    """With few steps the closed form is a difference of nearly equal numbers."""
    steps, rho = np.asarray([1, 2, 7, 99, 101, 1500]), np.float64(np.float32(momentum))
    gradients = np.cumsum(np.cumsum(rho ** np.arange(max(steps))))  # weights in a step, summed over steps
    actual = jax.jit(effective_steps)(steps, np.float32(momentum))
    np.testing.assert_allclose(actual, gradients[steps - 1], rtol=1e-6)


def test_worker_momentum_is_kept_between_rounds(ragged):
    """With several steps per round, sampled clients, and a decreasing learning rate."""
    beta = 0.8
    make = lambda hparams: worker_momentum(beta=hparams.settings["beta"])
    decrease = lambda hparams, t: hparams._replace(learning_rate=hparams.learning_rate / (1 + t))
    options = {"cohort_size": 4, "dropout_rate": 0.2, "algorithm": make, "schedule": decrease}
    p, state, records = simulate(ragged, RAGGED, HParams(RATE, settings={"beta": beta}), **options)
    reference, momenta = Reference(ragged, RAGGED), np.zeros((len(NUM_EXAMPLES), len(p)))
    for t, (clients, weights) in enumerate(cohort_weights(records)):
        rate = RATE / (1 + t)
        for i in clients:
            momenta[i] = beta * momenta[i] + (1 - beta) * (p - reference.train(i, p, rate=rate)) / rate
        p = p - rate * weights @ momenta[clients]
    np.testing.assert_allclose(to_vector(state.variables.params), p, **TOLERANCE)
    np.testing.assert_allclose(to_vector(state.client_states, batched=True), momenta, rtol=1e-3, atol=1e-4)


CLIP = 0.05
PLUGIN = """
from typing import Annotated
import optax
from fedsim import Scalar, Traced
def nesterov(learning_rate, *, momentum: Annotated[Scalar, Traced(ge=0, lt=1), "decay"] = 0.9):
    return optax.sgd(learning_rate, momentum, nesterov=True)
"""


def adam_step(state, g, p, t, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.0):
    m, v = state or (0.0, 0.0)
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
    return (m, v), m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps) + weight_decay * p


def sgd_step(state, g, p, t, momentum=0.0, weight_decay=0.0):
    """As in PyTorch: the clipped gradient, then weight decay, then momentum."""
    velocity = momentum * (state or (0.0,))[0] + g + weight_decay * p
    return (velocity,), velocity


def nesterov_step(state, g, p, t, momentum):
    velocity = momentum * (state or (0.0,))[0] + g
    return (velocity,), g + momentum * velocity


@pytest.mark.parametrize(
    ("name", "step", "settings"),
    [
        ("sgd", sgd_step, {"momentum": 0.7, "weight_decay": 0.2}),
        ("adam", adam_step, {"b1": 0.7, "b2": 0.9, "eps": 0.01}),
        ("adamw", adam_step, {"b1": 0.7, "b2": 0.9, "eps": 0.01, "weight_decay": 0.3}),
        ("nesterov.py:nesterov", nesterov_step, {"momentum": 0.6}),
    ],
)
def test_client_optimizers_step_along_clipped_gradients(name, step, settings, ragged, tmp_path):
    """Each round begins with a new state."""
    (tmp_path / "nesterov.py").write_text(PLUGIN)
    section = {"sgd": "client", "nesterov.py:nesterov": "nesterov"}.get(name, f"client_{name}")
    values = {"client.optimizer": name, "client.clip": CLIP, "client.learning_rate": RATE}
    values |= {f"{section}.{setting}": value for setting, value in settings.items()}
    (config,) = parse("", values, folder=tmp_path).runs()
    optimizer = {"client_optimizer": lambda hparams: build.client_optimizer(config, hparams)}
    p, state, records = simulate(ragged, RAGGED, build.hparams(config), cohort_size=4, **optimizer)
    reference = Reference(ragged, RAGGED)

    def train(i, p):
        state = None
        for t in range(1, reference.steps[i] + 1):
            state, move = step(state, np.clip(reference.gradient(i, p), -CLIP, CLIP), p, t, **settings)
            p = p - RATE * move
        return p

    for clients, weights in cohort_weights(records):
        p = p + weights @ np.asarray([train(i, p) - p for i in clients])
    np.testing.assert_allclose(to_vector(state.variables.params), p, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", KINDS["client.algorithm"].built_in)
def test_algorithms_whose_formulas_hold_for_sgd_only_refuse_others(name, ragged):
    (config,) = parse(f"client = {{algorithm = '{name}', optimizer = 'adam'}}\nserver.aggregator = 'fedavg'").runs()
    message = f'^client.optimizer: must be "sgd" for {name}, whose formulas hold for SGD only, got "adam"$'
    is_refused = name in ("scaffold", "fednova")
    with pytest.raises(ConfigError, match=message) if is_refused else nullcontext():
        check_inputs(config, ragged)
