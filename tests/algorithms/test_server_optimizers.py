"""Server optimizers against the formulas of "Adaptive Federated Optimization" and of momentum, in float64."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedsim.algorithms import server_optimizers

SERVER_RATE, B1, B2, TAU, DECAY = 0.05, 0.8, 0.95, 1e-2, 0.3
YOGI_START = 1e-6  # optax's; the paper's is tau squared


def adam(state, delta, t, *, is_yogi=False, start=(0.0, 0.0), corrects=True):
    m, v = state or start
    m = B1 * m + (1 - B1) * delta
    v = v - (1 - B2) * delta**2 * np.sign(v - delta**2) if is_yogi else B2 * v + (1 - B2) * delta**2
    first, second = (m / (1 - B1**t), v / (1 - B2**t)) if corrects else (m, v)
    return (m, v), SERVER_RATE * first / (np.sqrt(second) + TAU)


def adagrad(state, delta, t):
    v = (state or (TAU**2,))[0] + delta**2
    return (v,), SERVER_RATE * delta / (np.sqrt(v) + TAU)


def momentum(state, delta, t):
    velocity = B1 * (state or (0.0,))[0] + delta
    return (velocity,), SERVER_RATE * velocity


uncorrected = partial(adam, start=(0.0, TAU**2), corrects=False)
CASES = {
    "adam": (lambda rate: server_optimizers.adam(rate, b1=B1, b2=B2, eps=TAU), adam),
    "yogi": (
        lambda rate: server_optimizers.yogi(rate, b1=B1, b2=B2, eps=TAU),
        partial(adam, is_yogi=True, start=(YOGI_START, YOGI_START)),
    ),
    "adam without correction": (
        lambda rate: server_optimizers.adam(rate, b1=B1, b2=B2, eps=TAU, bias_correction=False),
        uncorrected,
    ),
    "yogi without correction": (
        lambda rate: server_optimizers.yogi(rate, b1=B1, b2=B2, eps=TAU, bias_correction=False),
        partial(uncorrected, is_yogi=True),
    ),
    "adagrad": (lambda rate: server_optimizers.adagrad(rate, eps=TAU), adagrad),
    "weight decay": (lambda rate: server_optimizers.sgd(rate, momentum=B1, weight_decay=DECAY), momentum),
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
