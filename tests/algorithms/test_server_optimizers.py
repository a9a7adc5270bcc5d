"""Server optimizers against the formulas of "Adaptive Federated Optimization" and of momentum, in float64."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedsim import HParams
from fedsim.algorithms import server_optimizers
from tests.algorithms.reference import RATE, WHOLE, Reference, cohort_weights, make_clients, simulate, to_vector

SERVER_RATE, B1, B2, TAU, DECAY = 0.05, 0.8, 0.95, 1e-2, 0.3
YOGI_START = 1e-6  # optax's; the paper's is tau squared


def correct_bias(average, decay, t):
    return average / (1 - decay**t)


def adam(state, delta, t):
    m, v = state if state else (0.0, 0.0)
    m, v = B1 * m + (1 - B1) * delta, B2 * v + (1 - B2) * delta**2
    return (m, v), SERVER_RATE * correct_bias(m, B1, t) / (np.sqrt(correct_bias(v, B2, t)) + TAU)


def yogi(state, delta, t):
    m, v = state if state else (np.full_like(delta, YOGI_START), np.full_like(delta, YOGI_START))
    m, v = B1 * m + (1 - B1) * delta, v - (1 - B2) * delta**2 * np.sign(v - delta**2)
    return (m, v), SERVER_RATE * correct_bias(m, B1, t) / (np.sqrt(correct_bias(v, B2, t)) + TAU)


def adam_without_correction(state, delta, t):
    m, v = state or (0.0, TAU**2)
    m, v = B1 * m + (1 - B1) * delta, B2 * v + (1 - B2) * delta**2
    return (m, v), SERVER_RATE * m / (np.sqrt(v) + TAU)


def yogi_without_correction(state, delta, t):
    m, v = state or (0.0, TAU**2)
    m, v = B1 * m + (1 - B1) * delta, v - (1 - B2) * delta**2 * np.sign(v - delta**2)
    return (m, v), SERVER_RATE * m / (np.sqrt(v) + TAU)


def adagrad(state, delta, t):
    v = (state or (TAU**2,))[0] + delta**2
    return (v,), SERVER_RATE * delta / (np.sqrt(v) + TAU)


def adagrad_from_zero(state, delta, t):
    return adagrad(state or (0.0,), delta, t)


def momentum(state, delta, t):
    velocity = B1 * (state or (0.0,))[0] + delta
    return (velocity,), SERVER_RATE * velocity


def plain(state, delta, t):
    return None, SERVER_RATE * delta


CASES = {
    "adam": (lambda rate: server_optimizers.adam(rate, b1=B1, b2=B2, eps=TAU), adam),
    "yogi": (lambda rate: server_optimizers.yogi(rate, b1=B1, b2=B2, eps=TAU), yogi),
    "adam without correction": (
        lambda rate: server_optimizers.adam(rate, b1=B1, b2=B2, eps=TAU, bias_correction=False),
        adam_without_correction,
    ),
    "yogi without correction": (
        lambda rate: server_optimizers.yogi(rate, b1=B1, b2=B2, eps=TAU, bias_correction=False),
        yogi_without_correction,
    ),
    "adagrad": (lambda rate: server_optimizers.adagrad(rate, eps=TAU), adagrad),
    "weight decay": (lambda rate: server_optimizers.sgd(rate, momentum=B1, weight_decay=DECAY), momentum),
    "adagrad from zero": (lambda rate: server_optimizers.adagrad(rate, eps=TAU, initial=0.0), adagrad_from_zero),
    "momentum": (lambda rate: server_optimizers.sgd(rate, momentum=B1), momentum),
    "plain": (lambda rate: server_optimizers.sgd(rate), plain),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_follow_the_formulas(name):
    """Of five rounds with random mean updates."""
    make, step = CASES[name]
    optimizer, rng, expected_state = make(SERVER_RATE), np.random.default_rng(0), None
    p = rng.normal(size=15)
    params = jnp.asarray(p, jnp.float32)
    state = optimizer.init(params)
    for t in range(1, 6):
        delta = rng.normal(size=15)
        change, state = optimizer.update(jnp.asarray(-delta, jnp.float32), state, params)
        params = optax.apply_updates(params, change)
        delta = delta - DECAY * p if name == "weight decay" else delta
        expected_state, move = step(expected_state, delta, t)
        p = p + move
        np.testing.assert_allclose(params, p, rtol=2e-4, atol=2e-5)


def test_the_server_steps_along_the_mean_update():
    dataset = make_clients(WHOLE)
    make, step = CASES["weight decay"]
    p, state, records = simulate(
        dataset,
        WHOLE,
        HParams(RATE, SERVER_RATE),
        cohort_size=4,
        server_optimizer=lambda hparams: make(hparams.server_learning_rate),
    )
    reference, optimizer_state = Reference(dataset, WHOLE), None
    for t, (clients, weights) in enumerate(cohort_weights(records), 1):
        delta = sum(weight * (reference.train(i, p) - p) for i, weight in zip(clients, weights, strict=True))
        optimizer_state, move = step(optimizer_state, delta - DECAY * p, t)
        p = p + move
    np.testing.assert_allclose(to_vector(state.variables.params), p, rtol=2e-4, atol=2e-5)
