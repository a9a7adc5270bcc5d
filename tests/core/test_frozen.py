"""Frozen arrays: arguments of a program, not constants in it, and never trained."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from tests.conftest import build_simulation, make_dataset

WIDTH = 400  # 5 x 400 frozen numbers, next to some 60 of everything else
HPARAMS = fedsim.HParams(0.1)


def on_features(frozen) -> fedsim.Task:
    """Softmax regression on random features."""
    model = fedsim.from_functions(
        lambda key: 0.1 * jax.random.normal(key, (WIDTH, 3)), lambda params, x, key: jnp.tanh(x @ frozen) @ params
    )
    return fedsim.classification(model, np.zeros(5, np.float32))


@pytest.fixture(scope="module")
def dataset():
    return make_dataset((4, 4, 4))


@pytest.fixture(scope="module")
def projection():
    return np.random.default_rng(0).normal(size=(5, WIDTH)).astype(np.float32)


def simulation_of(task, dataset) -> fedsim.Simulation:
    rule = lambda hparams: fedsim.aggregators.fedavg()
    return build_simulation(task, rule, cohort_size=3, batch_size=4, max_num_examples=dataset.max_num_examples)


def two_rounds(simulation, data):
    state = simulation.init(jax.random.key(0), data, HPARAMS)
    return simulation.run_rounds(state, data, HPARAMS, 2)[0].variables


def constants(closed) -> list[int]:
    """Sizes of all constants of a program, those of its parts included."""
    sizes = [np.size(const) for const in closed.consts]
    for equation in closed.jaxpr.eqns:
        for part in jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "jaxpr")):
            if hasattr(part, "consts"):
                sizes += constants(part)
    return sizes


def test_frozen_arrays_are_arguments(dataset, projection):
    task = fedsim.with_frozen(on_features, projection)
    simulation = simulation_of(task, dataset)
    bound = lambda frozen, data: two_rounds(simulation.bind(frozen), data)
    assert max(constants(jax.make_jaxpr(bound)(task.frozen, dataset.train)), default=0) < projection.size
    closed_over = lambda data: two_rounds(simulation_of(on_features(jnp.asarray(projection)), dataset), data)
    assert max(constants(jax.make_jaxpr(closed_over)(dataset.train))) >= projection.size  # what it is there for
    actual, expected = jax.jit(bound)(task.frozen, dataset.train), jax.jit(closed_over)(dataset.train)
    chex.assert_trees_all_close(actual.params, expected.params, rtol=1e-5, atol=1e-6)
