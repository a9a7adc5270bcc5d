"""Models of other libraries than flax.linen: the same network computes the same, and what is none is refused."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import fedsim
from tests.core.test_module import MASK, X, Y

LIBRARIES = ["linen", "nnx_module", "nnx_class", "equinox", "haiku"]


@pytest.mark.slow
def test_libraries_give_the_same_rows_and_resume(tmp_path):
    pytest.importorskip("equinox")
    pytest.importorskip("haiku")
    file = Path(__file__).with_name("libraries.py")
    tables = {
        "data": {"num_clients": 8},
        "client": {"batch_size": 16},
        "server": {"aggregator": "rfa", "cohort_size": 8, "eval_every": 3, "num_rounds": 3},
        "record": {"losses": False, "clients": "none"},
        "seed": 0,
        "sweep": [{"model.name": [f"{file}:{name}" for name in LIBRARIES]}],
    }
    fedsim.run(fedsim.load(tables), out=tmp_path, progress=False)
    result = fedsim.run(fedsim.load(tables, server__num_rounds=6), out=tmp_path, progress=False)
    for column in ("test_loss", "test_accuracy"):
        values = np.reshape(result.rounds.sort("run", "round")[column].to_numpy(), (len(LIBRARIES), -1))
        assert values.shape[1] == 3
        np.testing.assert_allclose(values, np.broadcast_to(values[0], values.shape), rtol=1e-6)
        assert values[0, 0] != values[0, -1]


class Net(nnx.Module):
    def __init__(self, num_classes, *, rngs):
        self.layer = nnx.Linear(5, num_classes, rngs=rngs)

    def __call__(self, x):
        return self.layer(x)


def test_an_nnx_module_keeps_its_parameters_and_a_class_draws_them():
    module = Net(3, rngs=nnx.Rngs(4))
    first = lambda model, seed: np.asarray(
        fedsim.classification(model, X[0]).init(jax.random.key(seed)).params["layer"]["kernel"]
    )
    for seed in (0, 1):
        np.testing.assert_array_equal(first(module, seed), module.layer.kernel[...])
    build = partial(Net, 3)
    assert not np.array_equal(first(build, 0), first(build, 1))
    task = fedsim.classification(build, X[0])
    assert task.outputs(task.init(jax.random.key(0)), X).shape == (len(X), 3)


def test_functions_get_a_key_in_training_only():
    seen = []

    def apply(params, x, key):
        seen.append(key is None)
        return x @ params * (1 if key is None else jax.random.uniform(key))

    task = fedsim.classification(fedsim.from_functions(lambda key: jax.random.normal(key, (5, 3)), apply), X[0])
    variables = task.init(jax.random.key(0))
    loss = lambda seed: float(task.loss(variables, X, Y, MASK, jax.random.key(seed))[0])
    seen.clear()
    assert loss(0) != loss(1)
    assert set(seen) == {False}
    seen.clear()
    (params,) = jax.tree.leaves(variables.params)
    log_probabilities = jax.nn.log_softmax(X @ params)[jnp.arange(len(Y)), Y]
    total = task.metrics(variables, X, Y, MASK).loss_sum
    assert set(seen) == {True}
    np.testing.assert_allclose(total, -jnp.sum(jnp.where(MASK, log_probabilities, 0)), rtol=1e-6)


@pytest.mark.parametrize("model", ["a model", lambda x: x])
def test_what_is_no_model_is_refused_with_a_remedy(model):
    with pytest.raises(TypeError, match=r"module: must be a module of flax\.linen or flax\.nnx, .*from_functions"):
        fedsim.classification(model, X[0])
