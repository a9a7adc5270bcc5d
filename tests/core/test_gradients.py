"""Gradients through a whole round, against finite differences."""

import jax
import jax.numpy as jnp
import pytest

import fedsim
from fedsim.aggregators import arfl, rfa
from tests.conftest import COUNTS, make_simulation

STEP = 2e-3  # rounding in float32 and curvature both change the slope by less than a hundredth
RULES = {"arfl": arfl(lam=1.0), "rfa": rfa()}


@pytest.mark.parametrize("name", RULES)
def test_gradient_of_a_round_in_its_inputs_and_learning_rate(name, dataset, data):
    """The slope of the test loss after a round along a direction of the clients' inputs and their learning rate."""
    sizes = {"cohort_size": len(COUNTS), "batch_size": max(COUNTS), "epochs": 1}
    simulation = make_simulation(dataset, lambda hparams: RULES[name], **sizes)
    direction = jax.random.normal(jax.random.key(1), data.x.shape)

    def loss_along(t):
        hparams, moved = fedsim.HParams(0.1 + 0.1 * t), data._replace(x=data.x + t * direction)
        state, _ = simulation.round(simulation.init(jax.random.key(0), moved, hparams), moved, hparams)
        return fedsim.evaluate(simulation.task, state.variables, dataset.x_test, dataset.y_test).loss_sum

    _, slope = jax.jit(lambda: jax.jvp(loss_along, (0.0,), (1.0,)))()
    low, high = jax.jit(jax.vmap(loss_along))(jnp.asarray([-STEP, STEP]))
    assert abs(slope) > 0.1
    assert float(slope) == pytest.approx(float(high - low) / (2 * STEP), rel=1e-2)
