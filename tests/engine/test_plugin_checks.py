"""Runs that are refused because they would be meaningless, or end the process: most of them have plug-ins."""

from functools import partial

import pytest

import fedsim
from fedsim.engine import run_plan
from fedsim.errors import ConfigError
from fedsim.runs.folder import RunFolder
from tests.engine.test_store import plan_of

PLUGIN = """
from typing import Annotated

import flax.linen as nn
import jax.numpy as jnp
from fedsim import Corruption
from fedsim.aggregators import from_weights
from fedsim.core.settings import Traced


def mean(report):
    return report.valid / jnp.maximum(jnp.sum(report.valid), 1)


def scaled(*, total: Annotated[float, Traced(gt=0), "sum of the weights"] = 1.0):
    return from_weights(lambda report: total * mean(report))


def negative():
    return from_weights(lambda report: mean(report).at[0].set(-0.5).at[1].add(0.5 + 1 / 4))


def equal_weights():
    return from_weights(lambda report: jnp.full(4, 0.25))


def undefined():
    return from_weights(lambda report: mean(report) * jnp.nan)


def fading():
    weights = lambda state, report, key: (mean(report) * jnp.where(state < 3, 1.0, 0.5), state + 1)
    return from_weights(weights, init=lambda variables, num_examples, losses: jnp.int32(0))


def skipping():
    return from_weights(lambda report: jnp.zeros(4))


def halving():
    def pre_aggregate(report, key):
        return report._replace(mixing=0.5 * jnp.eye(4))
    return pre_aggregate


def undeclared():
    def apply(data, corrupted, spec, key):
        return data._replace(x=255 - data.x, y=jnp.where(corrupted[0], 9 - data.y, data.y))
    return Corruption(apply, frozenset({"x"}))


def undeclared_sizes():
    def apply(data, corrupted, spec, key):
        return data._replace(num_examples=jnp.where(corrupted, 1, data.num_examples))
    return Corruption(apply)


def one_more():
    return Corruption(lambda data, corrupted, spec, key: data._replace(y=data.y + 1), frozenset({"y"}))


def key_first():
    return Corruption(lambda key, data, corrupted, spec: data)


def three(spec):
    return nn.Sequential([lambda x: x.reshape(len(x), -1), nn.Dense(3)])
"""


@pytest.fixture(autouse=True)
def plugin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugin.py").write_text(PLUGIN)


plan = partial(plan_of, [0])


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
    assert all(run.is_complete for run in folder.runs())


def test_weights_are_checked_in_every_round(tmp_path):
    with pytest.raises(ConfigError, match=r"must sum to 1.*, got 0\.5 in round 4; fedsim\.testing"):
        run_plan(plan(server__aggregator="plugin.py:fading"), tmp_path / "run")
    rounds = RunFolder(tmp_path / "run").read("rounds")
    assert rounds["round"].to_list() == [0, 2]


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


def test_a_corruption_with_the_arguments_of_earlier_versions():
    message = r"^corruption\.kind: plugin\.py:key_first: apply: key must be its last argument, not its first"
    with pytest.raises(ConfigError, match=message):
        plan(corruption__kind="plugin.py:key_first", corruption__fraction=0.5)


def test_a_corruption_that_makes_labels_which_are_no_classes(tmp_path):
    corrupted = plan(corruption__kind="shuffling+plugin.py:one_more", corruption__fraction=0.5)
    with pytest.raises(ConfigError, match=r"^corruption\.kind: .*0 to 9 .*got 10 from plugin\.py:one_more"):
        run_plan(corrupted, tmp_path / "run")


def test_a_model_with_fewer_outputs_than_classes():
    with pytest.raises(ConfigError, match=r"^model\.name: plugin\.py:three .*at least 10 outputs.*got 3"):
        plan(model__name="plugin.py:three")


def test_a_model_that_no_memory_holds_is_refused_before_anything_is_allocated():
    with pytest.raises(ConfigError, match=r"model\.name: mlp has 40,015,200,010 parameters, .* use a smaller model"):
        plan(mlp__hidden_sizes=[200000, 200000])
