"""Frozen arrays: arguments of a program, not constants in it, and never trained."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np

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


def test_frozen_arrays_are_arguments():
    data, projection = make_dataset((4, 4, 4)).train, np.random.default_rng(0).normal(size=(5, WIDTH))
    task, rule = fedsim.with_frozen(on_features, projection.astype(np.float32)), fedsim.aggregators.fedavg()
    simulate = partial(build_simulation, aggregator=lambda _: rule, cohort_size=3, batch_size=4, max_num_examples=4)
    bound = lambda frozen, data: two_rounds(simulate(task).bind(frozen), data)
    assert max(constants(jax.make_jaxpr(bound)(task.frozen, data)), default=0) < projection.size
    closed_over = lambda data: two_rounds(simulate(on_features(jnp.asarray(task.frozen))), data)
    assert max(constants(jax.make_jaxpr(closed_over)(data))) >= projection.size  # what it is there for
    actual, expected = jax.jit(bound)(task.frozen, data), jax.jit(closed_over)(data)
    chex.assert_trees_all_close(actual.params, expected.params, rtol=1e-5, atol=1e-6)
