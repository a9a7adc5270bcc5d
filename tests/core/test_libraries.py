"""Models of other libraries than flax.linen: they compute what they compute alone, and train as told."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import fedsim
from fedsim.config.toml import parse
from fedsim.engine import make_plan
from fedsim.errors import ConfigError
from tests.core.test_module import MASK, X, Y, trace


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


# As of PyTorch, whose modules take any arguments.
TORCH = type("Linear", (), {"__module__": "torch.nn.modules.linear", "__call__": lambda self, *args, **options: 0})


@pytest.mark.parametrize("model", ["a model", lambda x: x, TORCH()])
def test_what_is_no_model_is_refused_with_a_remedy(model):
    with pytest.raises(TypeError, match=r"module: must be a module of flax\.linen or flax\.nnx, .*from_functions"):
        fedsim.classification(model, X[0])


class Normed(nnx.Module):
    """Batch normalization and dropout in nnx's usual style: `train()` and `eval()`."""

    def __init__(self, *, rngs, rate=0.0, own_streams=False):
        self.norm = nnx.BatchNorm(5, momentum=0.5, rngs=rngs)
        self.drop = nnx.Dropout(rate, rngs=nnx.Rngs(0) if own_streams else rngs)
        self.layer = nnx.Linear(5, 3, rngs=rngs)

    def __call__(self, x):
        with jax.numpy_rank_promotion("allow"):
            return self.layer(self.drop(self.norm(x)))


class NormedByFlag(Normed):
    def __call__(self, x, *, is_training=False):
        with jax.numpy_rank_promotion("allow"):
            normed = self.norm(x, use_running_average=not is_training)
            return self.layer(self.drop(normed, deterministic=not is_training))


class NormedByFields(Normed):
    train, inference = False, True  # `train` is also a method of nnx.Module

    def __call__(self, x):
        with jax.numpy_rank_promotion("allow"):
            normed = self.norm(x, use_running_average=self.inference)
            return self.layer(self.drop(normed, deterministic=not self.train))


def build(kind, **options):
    """As a module, or inside of one."""
    of = {"flag": NormedByFlag, "fields": NormedByFields}.get(kind, Normed)
    module = nnx.bridge.to_linen(of, own_streams=kind == "own streams", **options)
    return nn.Sequential([module, nn.relu]) if kind == "nested" else module


KINDS = ["mode", "flag", "fields", "nested"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_nnx_class_learns_the_statistics_of_unmasked_examples(kind):
    task = fedsim.classification(build(kind), X[0])
    variables = task.init(jax.random.key(0))
    _, statistics = jax.jit(task.loss)(variables, X, Y, MASK, jax.random.key(1))
    mean, variance = sorted(jax.tree.leaves(statistics), key=np.sum)
    np.testing.assert_allclose(mean, X[:4].mean(axis=0) / 2, rtol=1e-4)
    np.testing.assert_allclose(variance, 0.5 + X[:4].var(axis=0) / 2, rtol=1e-4)
    evaluate = jax.jit(lambda x, mask: task.metrics(variables, x, Y[: len(x)], mask).loss_sum)
    together = evaluate(X, np.ones(6, bool))
    alone = sum(evaluate(X, np.arange(6) == i) for i in range(6))
    np.testing.assert_allclose(together, alone, rtol=1e-5)


@pytest.mark.parametrize("kind", [*KINDS, "own streams"])
def test_an_nnx_class_drops_out_in_training_only(kind):
    tasks = {rate: fedsim.classification(build(kind, rate=rate), X[0]) for rate in (0.5, 0.95)}
    variables = tasks[0.5].init(jax.random.key(0))
    loss = lambda rate, seed: float(tasks[rate].loss(variables, X, Y, MASK, jax.random.key(seed))[0])
    assert len({loss(0.5, 0), loss(0.5, 1), loss(0.95, 0)}) == 3
    assert len({float(task.metrics(variables, X, Y, MASK).loss_sum) for task in tasks.values()}) == 1


class Adapted(nnx.Module):
    def __init__(self, *, rngs):
        self.adapter = nnx.LoRA(5, 2, 3, rngs=rngs)

    def __call__(self, x):
        return self.adapter(x)


class Switched(Normed):
    def __call__(self, x, active=False):
        return self.layer(self.drop(x, deterministic=not active))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nnx.bridge.to_linen(Switched, rate=0.5), "dropout and normalization layers of Switched are off .* active;"),
        (nnx.bridge.to_linen(Adapted), r"LoRAParam would not be trained; use nnx\.Param"),
    ],
)
def test_an_nnx_class_that_would_train_wrongly_is_refused(module, message):
    with pytest.raises(ValueError, match=f"^module: {message}"):
        trace(fedsim.classification(module, X[0]))


PLUGIN = """
from flax import nnx

class Net(nnx.Module):
    def __init__(self, num_classes, *, rngs):
        self.layer = nnx.Linear(64, num_classes, rngs=rngs)

    def __call__(self, x):
        return self.layer(x.reshape(len(x), -1))

def net(spec):
    return Net(spec.num_classes, rngs=nnx.Rngs(0))

def other(spec):
    return "a model"
"""


def test_a_plug_in_may_return_an_nnx_module(tmp_path):
    (tmp_path / "nets.py").write_text(PLUGIN)
    load = lambda name: parse("", {"model.name": f"nets.py:{name}"})
    assert make_plan(load("net")).runs
    with pytest.raises(ConfigError, match=r"^model\.name: nets\.py:other must return a Task, .*nnx, .*, got str$"):
        make_plan(load("other"))
