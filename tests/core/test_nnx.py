"""Models of flax.nnx: refused with the way to make them linen, which works."""

import jax
import numpy as np
import pytest
from flax import nnx

import fedsim
from fedsim.config.toml import parse
from fedsim.engine import make_plan
from fedsim.errors import ConfigError
from tests.conftest import build_simulation


class Net(nnx.Module):
    def __init__(self, num_features, num_classes, *, rngs):
        self.layer = nnx.Linear(num_features, num_classes, rngs=rngs)

    def __call__(self, x):
        return self.layer(x)


def test_an_nnx_module_is_refused_with_a_remedy(dataset):
    with pytest.raises(TypeError, match=r"module: must be a flax\.linen module, got Net; .*to_linen"):
        fedsim.classification(Net(5, 3, rngs=nnx.Rngs(0)), dataset.train.x[0])


def test_an_nnx_class_as_linen_trains(dataset):
    task = fedsim.classification(nnx.bridge.to_linen(Net, 5, 3), dataset.train.x[0])
    simulation = build_simulation(
        task,
        lambda hparams: fedsim.aggregators.fedavg(),
        cohort_size=5,
        batch_size=4,
        max_num_examples=dataset.max_num_examples,
    )

    @jax.jit
    def train(key):
        state = simulation.init(key, dataset.train, fedsim.HParams(0.1))
        state, _ = simulation.run_rounds(state, dataset.train, fedsim.HParams(0.1), max_rounds=20)
        return fedsim.evaluate(task, state.variables, dataset.x_test, dataset.y_test)

    metrics = train(jax.random.key(0))
    assert np.asarray(metrics.num_correct) / dataset.y_test.size > 0.8


PLUGIN = """
from flax import nnx

def net(spec):
    return nnx.Linear(64, spec.num_classes, rngs=nnx.Rngs(0))

class Net(nnx.Module):
    def __init__(self, num_classes, *, rngs):
        self.layer = nnx.Linear(64, num_classes, rngs=rngs)

    def __call__(self, x):
        return self.layer(x.reshape(len(x), -1))

def linen(spec):
    return nnx.bridge.to_linen(Net, spec.num_classes)
"""


def test_a_plug_in_that_returns_an_nnx_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(PLUGIN)
    load = lambda name: parse("", {"model.name": f"nets.py:{name}"})
    with pytest.raises(
        ConfigError, match=r"^model\.name: nets\.py:net must return a flax\.linen .*got Linear; .*to_linen"
    ):
        make_plan(load("net"))
    assert make_plan(load("linen")).runs
