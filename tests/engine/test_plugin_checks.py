"""Runs that are refused because they would be meaningless, or end the process: most of them have plug-ins."""

from functools import partial

import numpy as np
import pytest

import fedsim
from fedsim.engine import make_plan, run_plan
from fedsim.errors import ConfigError
from fedsim.runs.folder import RunFolder
from tests.engine.test_store import plan_of

PLUGIN = """
from typing import Annotated

import flax.linen as nn
import jax.numpy as jnp
from flax import nnx
from fedsim import Algorithm, Attack, Corruption, classification
from fedsim.aggregators import from_weights
from fedsim.core.corrupt import example_owners
from fedsim.core.settings import Bounds, Traced

MEMORY = {}


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
    more = lambda data, corrupted, spec, key: data._replace(y=data.y + corrupted[example_owners(data)])
    return Corruption(more, frozenset({"y"}))


def of_all_clients():
    return Corruption(lambda data, corrupted, spec, key: data._replace(y=9 - data.y), frozenset({"y"}))


def fifty():
    few = lambda data, corrupted, spec, key: data._replace(num_examples=jnp.where(corrupted, 50, data.num_examples))
    return Corruption(few, frozenset({"num_examples"}))


def graded():
    def apply(data, corrupted, spec, key):
        share = corrupted * jnp.linspace(0, 1, 12)
        return data._replace(num_examples=data.num_examples - (share * data.num_examples).astype(jnp.int32))

    return Corruption(apply, frozenset({"num_examples"}))


def halved_but_one():
    def apply(data, corrupted, spec, key):
        fewer = jnp.maximum(1, data.num_examples // 2)
        return data._replace(num_examples=jnp.where(corrupted, fewer, data.num_examples))

    return Corruption(apply, frozenset({"num_examples"}))


def with_others():
    more = lambda data, corrupted, spec, key: data._replace(num_examples=data.num_examples * (1 + corrupted))
    return Corruption(more, frozenset({"num_examples"}))


def last_half():
    return Corruption(lambda data, corrupted, spec, key: data, frozenset({"num_examples", "offsets"}))


def with_short_alpha():
    return mean_rule()._replace(client_weights=lambda state: jnp.ones(3) / 3)


def mean_rule():
    return from_weights(mean)


def remembering():
    return from_weights(lambda report: MEMORY.setdefault("weights", mean(report)))


def three_values():
    return Attack(forge_report=lambda state, report, malicious, key: report)


def swapped():
    return Attack(forge_report=lambda state, report, malicious, key: (report.losses, report.num_examples))


def one_state():
    return Algorithm(init=lambda params: jnp.zeros(3))


def blank():
    where = lambda data, corrupted: corrupted[example_owners(data)][:, None]
    nan = lambda data, corrupted, spec, key: data._replace(x=jnp.where(where(data, corrupted), jnp.nan, data.x))
    return Corruption(nan, frozenset({"x"}))


def without_bounds(*, total: Annotated[float, Bounds, "sum of the weights"] = 1.0):
    return from_weights(mean)


def sum_alone(spec):
    task = softmax_regression(spec)
    named = lambda metrics: metrics._replace(named={"a": metrics.loss_sum})
    return task._replace(metrics=lambda *args: named(task.metrics(*args)))


def halved():
    return Corruption(lambda data, corrupted, spec, key: data._replace(x=data.x / 2), frozenset({"x"}))


def shortened():
    return Corruption(lambda data, corrupted, spec, key: data._replace(y=data.y[1:]), frozenset({"y"}))


def halving_trigger():
    same = lambda data, corrupted, spec, key: data
    return Corruption(same, frozenset({"x"}), trigger=lambda x, y, spec: (x / 2, y))


def without_return():
    return lambda learning_rate, round: None


def key_first():
    return Corruption(lambda key, data, corrupted, spec: data)


def three(spec):
    return nn.Sequential([lambda x: x.reshape(len(x), -1), nn.Dense(3)])


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


def always_shifted(spec):
    return Net(lambda x, train, mask: x - jnp.mean(x))


def always_normed(spec):
    class Normed(nnx.Module):
        def __init__(self, *, rngs):
            self.norm, self.layer = nnx.BatchNorm(64, rngs=rngs), nnx.Linear(64, 10, rngs=rngs)

        def __call__(self, x):
            return self.layer(self.norm(x.reshape(x.shape[0], -1), use_running_average=False))

    return nnx.bridge.to_linen(Normed)


def normed(spec):
    class Normed(nn.Module):
        @nn.compact
        def __call__(self, x, train=False):
            x = nn.Dense(1024)(x.reshape(len(x), -1))
            return nn.Dense(10)(nn.BatchNorm(use_running_average=not train)(x))

    return Normed()


def always_dropped(spec):
    class Dropped(nnx.Module):
        def __init__(self, *, rngs):
            self.drop, self.layer = nnx.Dropout(0.5, rngs=rngs), nnx.Linear(64, 10, rngs=rngs)

        def __call__(self, x):
            return self.layer(self.drop(x.reshape(x.shape[0], -1), deterministic=False))

    return nnx.bridge.to_linen(Dropped)


def softmax_regression(spec):
    return classification(Net(lambda x, train, mask: x), jnp.zeros(spec.shape, jnp.uint8))


def unmasked_count(spec):
    task = softmax_regression(spec)
    return task._replace(metrics=lambda *args: task.metrics(*args)._replace(num_examples=args[-1].size))


def mean_metrics(spec):
    task = softmax_regression(spec)

    def metrics(*args):
        sums = task.metrics(*args)
        return sums._replace(loss_sum=sums.loss_sum / jnp.maximum(sums.num_examples, 1))

    return task._replace(metrics=metrics)


def unmasked_sum(spec):
    task = softmax_regression(spec)

    def metrics(variables, x, y, mask):
        return task.metrics(variables, x, y, mask)._replace(named={"mean": (jnp.sum(x), jnp.sum(mask))})

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


@pytest.fixture(autouse=True)
def plugin(tmp_path):
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
    message = r"^server\.pre_aggregators: weights of plugin\.py:halving must sum to 1.*, got 0\.5 with synthetic"
    with pytest.raises(ConfigError, match=message):
        plan(server__aggregator="median", server__pre_aggregators=["plugin.py:halving"])


def test_weights_of_a_weighting_that_the_rule_would_normalize():
    assert len(plan(server__aggregator="median", server__weighting="plugin.py:scaled").runs) == 1
    for rule in ({"server__weighting": "plugin.py:scaled"}, {"server__aggregator": "plugin.py:scaled"}):
        for layerwise in (False, True):
            keys = {"server__aggregator": "median", "server__layerwise": layerwise} | rule
            (key,) = {name.replace("__", r"\.") for name in rule}
            with pytest.raises(ConfigError, match=rf"^{key}: weights of plugin\.py:scaled must sum to 1.*, got 2 with"):
                plan(**keys, scaled__total=2.0)


def test_rounds_may_be_skipped(tmp_path):
    folder = run_plan(plan(server__aggregator="plugin.py:skipping"), tmp_path / "run")
    assert all(run.is_complete for run in folder.runs())


def test_a_run_ends_with_the_code_that_it_began_with(tmp_path):
    class Edit(fedsim.Callback):
        def on_start(self, start):
            (tmp_path / "plugin.py").write_text("def (")

    experiment = {"server__aggregator": "plugin.py:skipping", "server__num_rounds": 4, "seed": fedsim.sweep([0, 1])}
    folder = run_plan(plan(**experiment), tmp_path / "run", [Edit()])
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


@pytest.mark.parametrize(
    ("key", "name", "message"),
    [
        ("corruption__kind", "halved", r"x must be uint8\[88, 8, 8, 1\], got float32"),
        ("corruption__kind", "shortened", r"y must be int32\[88\], got int32\[87\]"),
        ("client__schedule", "without_return", r"the rate of client\.schedule must have shape \[\], got NoneType"),
    ],
)
def test_results_of_another_form_are_refused_when_planning(key, name, message):
    """They would be other numbers, not an error: floats are not scaled as images, and None is no learning rate."""
    fraction = {"corruption__fraction": 0.5} if key == "corruption__kind" else {}
    with pytest.raises(ConfigError, match=rf"^{key.replace('__', '.')}: plugin\.py:{name} failed: {message}"):
        plan(**{key: f"plugin.py:{name}"}, **fraction)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("of_all_clients", "must not change y of other clients"),
        ("with_others", "must not raise num_examples or make them negative"),
        ("last_half", "must be among x, y, num_examples, got offsets"),
    ],
)
def test_a_corruption_of_what_is_not_its_clients(kind, message):
    keys = {"corruption__fraction": 0.5, "data__num_clients": 8, "data__num_train": None}
    plan(corruption__kind="plugin.py:fifty", **keys)  # of some 180 examples each
    for right in ("graded", "halved_but_one"):
        twelve = {"data__num_clients": 12, "data__num_train": None, "data__partition": "iid"}
        plan(corruption__kind=f"plugin.py:{right}", corruption__fraction=0.5, **twelve)
    with pytest.raises(ConfigError, match=rf"^corruption\.kind: .*plugin\.py:{kind} {message}"):
        plan(corruption__kind=f"plugin.py:{kind}", corruption__fraction=0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"server__aggregator": "plugin.py:with_short_alpha"}, r"a rule's client_weights must have shape \[6\], got"),
        (
            {"attack__kind": "plugin.py:three_values", "corruption__kind": "shuffling", "corruption__fraction": 0.5},
            r"must be an attack's \(forged num_examples, forged losses\), got CohortReport",
        ),
        (
            {"attack__kind": "plugin.py:swapped", "corruption__kind": "shuffling", "corruption__fraction": 0.5},
            r"forged num_examples must be integers, got float32\[6\]",
        ),
        (
            {"client__algorithm": "plugin.py:one_state"},
            r"must be an algorithm's \(client state, server state\), got float32\[3\]",
        ),
        (
            {"server__aggregator": "plugin.py:without_bounds"},
            r"total: Bounds must have arguments, such as",
        ),
        (
            {"server__aggregator": fedsim.sweep(["median", "plugin.py:remembering"])},  # of another group's branch
            "plugin.py:remembering failed: ",
        ),
        (
            {"model__name": "plugin.py:sum_alone"},
            r"must be of metrics\.named\['a'\] \(a sum, its divisor\), got float32",
        ),
    ],
)
def test_what_a_run_would_fail_at_is_one_line(changes, message, tmp_path):
    with pytest.raises(ConfigError, match=message) as caught:
        run_plan(plan(**changes), tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_inputs_that_a_corruption_makes_undefined_and_keys_without_effect_with_data_in_memory():
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    data = fedsim.from_arrays(x, np.arange(40) % 2, np.arange(40) // 10)
    tables = {"model": {"name": "logistic"}, "server": {"aggregator": "fedavg", "cohort_size": 4, "num_rounds": 1}}
    (warning,) = make_plan(fedsim.load(tables | {"attack": {"kind": "ipm"}}, data=data)).warnings
    assert warning.startswith("attack.kind: has no effect: no participating client is malicious")
    tables["corruption"] = {"kind": "plugin.py:blank", "fraction": 0.5}
    with pytest.raises(ConfigError, match=r"^corruption\.kind: plugin\.py:blank must keep x finite"):
        make_plan(fedsim.load(tables, data=data))


def test_a_trigger_that_changes_the_type_of_inputs_is_refused(tmp_path):
    corrupted = plan(corruption__kind="plugin.py:halving_trigger", corruption__fraction=0.5)
    message = r"plugin\.py:halving_trigger failed: the result of trigger\[0\] must be uint8\[60, 8, 8, 1\], got float32"
    with pytest.raises(ConfigError, match=message):
        run_plan(corrupted, tmp_path / "run")


def test_a_corruption_with_the_arguments_of_earlier_versions():
    message = r"^corruption\.kind: plugin\.py:key_first: apply: key must be its last argument, not its first"
    with pytest.raises(ConfigError, match=message):
        plan(corruption__kind="plugin.py:key_first", corruption__fraction=0.5)


def test_a_corruption_that_makes_labels_which_are_no_classes(tmp_path):
    corrupted = plan(corruption__kind="shuffling+plugin.py:one_more", corruption__fraction=1.0)
    with pytest.raises(ConfigError, match=r"^corruption\.kind: .*0 to 9 .*got 10 from plugin\.py:one_more"):
        run_plan(corrupted, tmp_path / "run")


def test_a_model_with_fewer_outputs_than_classes():
    with pytest.raises(ConfigError, match=r"^model\.name: plugin\.py:three .*at least 10 outputs.*got 3"):
        plan(model__name="plugin.py:three")


def test_a_model_that_no_memory_holds_is_refused_before_anything_is_allocated():
    with pytest.raises(ConfigError, match=r"model\.name: mlp has 40,015,200,010 parameters, .* use a smaller model"):
        plan(mlp__hidden_sizes=[200000, 200000])


# Models that read padding, or other examples in evaluation, or that cannot be trained

READS_PADDING = r" reads padding in training: client\.batch_size = 8 does not divide .*`mask` \[B\] is False$"
READS_OTHERS = " gives an example another result in evaluation if the rest of its batch changes"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("centered", READS_PADDING),
        ("always_normed", READS_OTHERS),
        ("always_dropped", READS_OTHERS),
        ("mean_metrics", READS_OTHERS),
        ("unmasked_sum", READS_OTHERS),
        ("unmasked_count", ": metrics must count the examples where mask is True, and no others"),
        ("two_outputs", r": must return an array \[1, \.\.\.\] for 1 examples, got tuple"),
        ("without_parameters", " has no parameters, so nothing is trained"),
    ],
)
def test_a_model_that_would_give_wrong_numbers_is_refused(model, message):
    with pytest.raises(ConfigError, match=rf"^model\.name: plugin\.py:{model}{message}") as caught:
        plan(model__name=f"plugin.py:{model}")
    assert "\n" not in str(caught.value)


def test_a_mean_of_the_batch_is_found_where_all_images_have_the_same():
    rng = np.random.default_rng(0)
    x = np.stack([rng.permutation(64).reshape(8, 8, 1) for _ in range(40)]).astype(np.uint8)
    data = fedsim.from_arrays(x, np.arange(40) % 10, np.arange(40) % 4)
    tables = {"model": {"name": "plugin.py:always_shifted"}, "server": {"cohort_size": 4}}
    with pytest.raises(ConfigError, match=rf"^model\.name: plugin\.py:always_shifted{READS_OTHERS}"):
        make_plan(fedsim.load(tables, data=data))


def test_batches_of_models_with_batch_statistics_stay_whole():
    micro_batch = lambda **model: plan(client__batch_size=32, **model).groups[0].layout.micro_batch
    assert 0 < micro_batch(mlp__hidden_sizes=[1024], model__name="mlp") < 32
    assert micro_batch(model__name="plugin.py:normed") == 0
    assert micro_batch(model__name="plugin.py:normed", engine__micro_batch=8) == 8


def test_a_model_may_compare_the_examples_of_full_batches():
    for model, options in (("centered_by_mask", {}), ("centered", {"client__batch_size": 1})):
        assert len(plan(model__name=f"plugin.py:{model}", **options).runs) == 1
