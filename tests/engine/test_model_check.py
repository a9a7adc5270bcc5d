"""Plug-in models that read padding, or other examples in evaluation, or that cannot be trained, are refused."""

import numpy as np
import pytest

import fedsim
from fedsim.config.toml import parse
from fedsim.engine import make_plan
from fedsim.errors import ConfigError

PLUGIN = """
import flax.linen as nn
import jax.numpy as jnp
from flax import nnx
from fedsim import classification


class Net(nn.Module):
    center: object

    @nn.compact
    def __call__(self, x, train=False, mask=None):
        x = x.reshape(x.shape[0], -1)
        return nn.Dense(10)(self.center(x, train, mask))


def batch_mean(x, where=True):
    return jnp.mean(x, axis=0, keepdims=True, where=where)


def centered(spec):
    return Net(lambda x, train, mask: x - batch_mean(x) if train else x)


def centered_by_mask(spec):
    return Net(lambda x, train, mask: x - batch_mean(x, mask[:, None]) if train else x)


def always_centered(spec):
    return Net(lambda x, train, mask: x - batch_mean(x, mask[:, None]))


def always_shifted(spec):
    return Net(lambda x, train, mask: x - jnp.mean(x))


def always_normed(spec):
    class Normed(nnx.Module):
        def __init__(self, *, rngs):
            self.norm, self.layer = nnx.BatchNorm(64, rngs=rngs), nnx.Linear(64, 10, rngs=rngs)

        def __call__(self, x):
            return self.layer(self.norm(x.reshape(x.shape[0], -1), use_running_average=False))

    return nnx.bridge.to_linen(Normed)


def always_dropped(spec):
    class Dropped(nnx.Module):
        def __init__(self, *, rngs):
            self.drop, self.layer = nnx.Dropout(0.5, rngs=rngs), nnx.Linear(64, 10, rngs=rngs)

        def __call__(self, x):
            return self.layer(self.drop(x.reshape(x.shape[0], -1), deterministic=False))

    return nnx.bridge.to_linen(Dropped)


def softmax_regression(spec):
    return classification(Net(lambda x, train, mask: x), jnp.zeros(spec.shape, jnp.uint8))


def unmasked_loss(spec):
    task = softmax_regression(spec)
    return task._replace(loss=lambda v, x, y, mask, key: task.loss(v, x, y, jnp.ones_like(mask), key))


def unmasked_count(spec):
    task = softmax_regression(spec)
    return task._replace(metrics=lambda *args: task.metrics(*args)._replace(num_examples=args[-1].size))


def mean_metrics(spec):
    task = softmax_regression(spec)

    def metrics(*args):
        sums = task.metrics(*args)
        return sums._replace(loss_sum=sums.loss_sum / jnp.maximum(sums.num_examples, 1))

    return task._replace(metrics=metrics)


def two_outputs(spec):
    class Twice(nn.Module):
        @nn.compact
        def __call__(self, x):
            return x, nn.Dense(10)(x)

    return Twice()


def without_parameters(spec):
    class Empty(nn.Module):
        @nn.compact
        def __call__(self, x):
            return x.reshape(x.shape[0], -1)[:, :10]

    return Empty()
"""


def plan(model, **changes):
    settings = {"server.cohort_size": 4, "server.num_rounds": 1, "model.name": f"plugin.py:{model}", **changes}
    return make_plan(parse("", settings))


@pytest.fixture(autouse=True)
def plugin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugin.py").write_text(PLUGIN)


READS_PADDING = r" reads padding in training: client\.batch_size = 32 does not divide .*`mask` \[B\] is False$"
READS_OTHERS = " gives an example another result in evaluation if the rest of its batch changes"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("centered", READS_PADDING),
        ("unmasked_loss", READS_PADDING),
        ("always_centered", READS_OTHERS),
        ("always_normed", READS_OTHERS),
        ("always_dropped", READS_OTHERS),
        ("mean_metrics", READS_OTHERS),
        ("unmasked_count", ": metrics must count the examples where mask is True, and no others"),
        ("two_outputs", r": must return an array \[1, \.\.\.\] for 1 examples, got tuple"),
        ("without_parameters", " has no parameters, so nothing is trained"),
    ],
)
def test_a_model_that_would_give_wrong_numbers_is_refused(model, message):
    with pytest.raises(ConfigError, match=rf"^model\.name: plugin\.py:{model}{message}") as caught:
        plan(model)
    assert "\n" not in str(caught.value)


def test_a_mean_of_the_batch_is_found_where_all_images_have_the_same():
    rng = np.random.default_rng(0)
    x = np.stack([rng.permutation(64).reshape(8, 8, 1) for _ in range(40)]).astype(np.uint8)
    data = fedsim.from_arrays(x, np.arange(40) % 10, np.arange(40) % 4)
    tables = {"model": {"name": "plugin.py:always_shifted"}, "server": {"cohort_size": 4}}
    with pytest.raises(ConfigError, match=rf"^model\.name: plugin\.py:always_shifted{READS_OTHERS}"):
        make_plan(fedsim.load(tables, data=data))


def test_a_model_may_compare_the_examples_of_full_batches():
    for model, options in (("centered_by_mask", {}), ("centered", {"client.batch_size": 1})):
        assert len(plan(model, **options).runs) == 1
