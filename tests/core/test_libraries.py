"""Models of other libraries than flax.linen compute what they compute alone; what is no model is refused."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import fedsim
from tests.core.test_module import MASK, X, Y


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
    task = fedsim.classification(module, X[0])
    np.testing.assert_allclose(task.outputs(task.init(jax.random.key(0)), X), module(X), rtol=1e-5)
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
