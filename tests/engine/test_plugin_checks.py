"""Plug-ins whose weights are no weights, that change more than they say, or that read padding are refused."""

import pytest

import fedsim
from fedsim.config.toml import parse
from fedsim.engine import make_plan, run_plan
from fedsim.errors import ConfigError
from fedsim.runs.folder import RunFolder

PLUGIN = """
from typing import Annotated

import flax.linen as nn
import jax.numpy as jnp
from flax import nnx
from fedsim import Corruption, classification
from fedsim.aggregators import from_weights
from fedsim.core.settings import Traced


def mean(report):
    return report.valid / jnp.maximum(jnp.sum(report.valid), 1)


def scaled(*, total: Annotated[float, Traced(gt=0), "sum of the weights"] = 1.0):
    return from_weights(lambda state, report, key: (total * mean(report), state))


def negative():
    return from_weights(lambda state, report, key: (mean(report).at[0].set(-0.5).at[1].add(0.5 + 1 / 4), state))


def equal_weights():
    return from_weights(lambda state, report, key: (jnp.full(4, 0.25), state))


def undefined():
    return from_weights(lambda state, report, key: (mean(report) * jnp.nan, state))


def fading():
    weights = lambda state, report, key: (mean(report) * jnp.where(state < 3, 1.0, 0.5), state + 1)
    return from_weights(weights, init=lambda variables, num_examples, losses: jnp.int32(0))


def skipping():
    return from_weights(lambda state, report, key: (jnp.zeros(4), state))


def halving():
    def pre_aggregate(report, key):
        return report._replace(mixing=0.5 * jnp.eye(4))
    return pre_aggregate


def undeclared():
    def apply(key, data, corrupted, spec):
        return data._replace(x=255 - data.x, y=jnp.where(corrupted[0], 9 - data.y, data.y))
    return Corruption(apply, frozenset({"x"}))


def undeclared_sizes():
    def apply(key, data, corrupted, spec):
        return data._replace(num_examples=jnp.where(corrupted, 1, data.num_examples))
    return Corruption(apply)


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


def always_training(spec):
    return nn.Sequential([nn.Dropout(0.5, deterministic=False), nn.Dense(10)])


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
SMALL = """
[data]
num_clients = 6
[mlp]
hidden_sizes = [4]
[server]
cohort_size = 4
num_rounds = 5
eval_every = 5
"""


@pytest.fixture(autouse=True)
def plugin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugin.py").write_text(PLUGIN)


def plan(**changes):
    return make_plan(parse(SMALL, {key.replace("__", "."): value for key, value in changes.items()}))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("negative", r"must not be negative, got -0\.5 "),
        ("equal_weights", r"must be 0 for clients that are not valid, got 0\.25 "),
        ("undefined", r"must be finite, got nan "),
    ],
)
def test_weights_are_checked_when_planning(rule, message):
    with pytest.raises(
        ConfigError, match=rf"^server\.aggregator: weights of plugin\.py:{rule} {message}with synthetic"
    ):
        plan(server__aggregator=f"plugin.py:{rule}")


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
        ("always_training", ": Sequential is in training mode in evaluation, too .*; let it take `train`"),
        ("two_outputs", r": must return an array \[1, \.\.\.\] for 1 examples, got tuple"),
        ("without_parameters", " has no parameters, so nothing is trained"),
    ],
)
def test_a_model_that_would_give_wrong_numbers_is_refused(model, message):
    with pytest.raises(ConfigError, match=rf"^model\.name: plugin\.py:{model}{message}") as caught:
        plan(model__name=f"plugin.py:{model}")
    assert "\n" not in str(caught.value)


def test_a_model_may_compare_the_examples_of_full_batches():
    for model, options in (("centered_by_mask", {}), ("centered", {"client__batch_size": 1})):
        assert len(plan(model__name=f"plugin.py:{model}", **options).runs) == 1


def test_every_value_of_a_sweep_is_checked():
    sweep = lambda *totals: plan(server__aggregator="plugin.py:scaled", scaled__total=fedsim.sweep(totals))
    assert len(sweep(1.0, 1.0001).runs) == 2
    with pytest.raises(ConfigError, match=r"must sum to 1, or to 0 to skip the round, got 2 with synthetic"):
        sweep(1.0, 2.0, 1.0001)


def test_a_pre_aggregator_that_loses_weight():
    with pytest.raises(ConfigError, match=r"weights of plugin\.py:halving must sum to 1.*, got 0\.5 with synthetic"):
        plan(server__aggregator="median", server__pre_aggregators=["plugin.py:halving"])


def test_weights_of_a_weighting_that_the_rule_would_normalize():
    assert len(plan(server__aggregator="median", server__weighting="plugin.py:scaled").runs) == 1
    with pytest.raises(ConfigError, match=r"weights of plugin\.py:scaled must sum to 1.*, got 2 with synthetic"):
        plan(server__aggregator="median", server__weighting="plugin.py:scaled", scaled__total=2.0)


def test_rounds_may_be_skipped(tmp_path):
    folder = run_plan(plan(server__aggregator="plugin.py:skipping"), tmp_path / "run")
    assert folder.read_manifest()["status"] == "complete"


def test_weights_are_checked_in_every_round(tmp_path):
    changes = {"server__aggregator": "plugin.py:fading", "server__eval_every": 2, "server__num_rounds": 6}
    with pytest.raises(ConfigError, match=r"must sum to 1.*, got 0\.5 in round 4; fedsim\.testing"):
        run_plan(plan(**changes), tmp_path / "run")
    rounds = RunFolder(tmp_path / "run").read_parts("rounds")
    assert rounds["round"].to_pylist() == [0, 2]


@pytest.mark.parametrize(
    ("kind", "field", "declared"),
    [("undeclared", "y", '"x", "y"'), ("undeclared_sizes", "num_examples", '"num_examples"')],
)
def test_a_corruption_that_changes_what_it_does_not_declare(kind, field, declared):
    with pytest.raises(ConfigError) as caught:
        plan(corruption__kind=f"plugin.py:{kind}", corruption__fraction=0.5)
    assert str(caught.value) == (
        f"corruption.kind: plugin.py:{kind} must not change {field}, which is not among its changed_fields; use "
        f"changed_fields = frozenset({{{declared}}})"
    )
