"""What a `Simulation` and its parts refuse in Python, with the name of the argument."""

import dataclasses

import jax
import numpy as np
import pytest

import fedsim
from fedsim.core.types import Examples
from fedsim.models import CharLSTM
from tests.conftest import Linear, arfl, build_simulation, make_simulation


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, r"training\.batch_size: .*>= 1, got 0"),
        ({"batch_size": None}, r"training\.batch_size: .*>= 1, got None"),
        ({"cohort_size": 0.5}, r"cohort\.size: .*>= 1, got 0\.5"),
        ({"epochs": 0}, r"training\.epochs: .*got 0"),
        ({"steps": 0}, r"training\.steps: .*got 0"),
        ({"client_width": -1}, r"cohort\.width: .*>= 0, got -1"),
        ({"dropout_rate": 2}, r"cohort\.dropout_rate: .*got 2"),
        ({"loss_at": "next"}, r"losses\.model: must be \"broadcast\" or \"aggregated\", got 'next'"),
    ],
)
def test_options_out_of_range_are_refused(dataset, options, message):
    with pytest.raises(ValueError, match=message):
        make_simulation(dataset, **options)


@pytest.mark.parametrize("method", [lambda hparams: None, fedsim.aggregators.arfl, fedsim.aggregators.median()])
def test_a_method_that_is_not_a_function_of_hparams_and_round_is_refused(dataset, method):
    with pytest.raises(ValueError, match=r"^method: must be a function of \(hparams, round\)"):
        dataclasses.replace(make_simulation(dataset), method=method)


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_fewer_outputs_than_classes_are_refused(dataset, data, num_outputs):
    """The third class would have no loss: its one-hot row is zero."""
    task = fedsim.classification(Linear(num_outputs), dataset.train.x[0])
    simulation = build_simulation(task, arfl, cohort_size=5, batch_size=4, max_num_examples=dataset.max_num_examples)
    with pytest.raises(ValueError, match=f"^task: .*{num_outputs} outputs.*got 2$"):
        simulation.init(jax.random.key(0), data, fedsim.HParams())
    simulation.init(jax.random.key(0), data._replace(y=data.y % num_outputs), fedsim.HParams())
    make_simulation(dataset).init(jax.random.key(0), data, fedsim.HParams())
    with pytest.raises(ValueError, match=r"^task: .*got 3$"):
        make_simulation(dataset).init(jax.random.key(0), data._replace(y=data.y + 1), fedsim.HParams())


def test_a_cohort_larger_than_all_clients_is_refused_also_inside_jit(dataset, data):
    simulation = make_simulation(dataset, cohort_size=50)
    for init in (simulation.init, jax.jit(simulation.init)):
        with pytest.raises(ValueError, match=r"^cohort\.size: .*at most 8.*got 50"):
            init(jax.random.key(0), data, fedsim.HParams())


@pytest.mark.parametrize("number", [0.3, 99, -1, float("nan")])
def test_an_impossible_number_of_corrupted_clients_is_refused(dataset, data, number):
    with pytest.raises(ValueError, match=rf"^num_corrupted: .*0 to 8.*got {number:g}$"):
        fedsim.corrupt(fedsim.corruption.flipping(), jax.random.key(0), data, dataset.spec, number)


def test_what_is_no_number_or_key_is_refused(dataset, data):
    corrupt = lambda key, number: fedsim.corrupt(fedsim.corruption.flipping(), key, data, dataset.spec, number)
    for number in ("a", None):
        with pytest.raises(ValueError, match=rf"^num_corrupted: must be an integer, got {number!r}$"):
            corrupt(jax.random.key(0), number)
    for key in (0, -1, 1.5, "a", None):
        with pytest.raises(ValueError, match=rf"^key: must be a key of JAX, .*, got {key!r}"):
            corrupt(key, 1)


def test_what_is_no_task_rule_corruption_or_training_data_is_refused(dataset, data):
    key = jax.random.key(0)
    corrupt = lambda corruption, data: fedsim.corrupt(corruption, key, data, dataset.spec, 1)
    with pytest.raises(AssertionError, match=r"^task must be a fedsim\.Task, got Linear; use fedsim\.classification"):
        dataclasses.replace(make_simulation(dataset), task=Linear())
    with pytest.raises(AssertionError, match=r"^layerwise: rule must be a fedsim\.Aggregator, got function$"):
        fedsim.layerwise(fedsim.aggregators.median)
    with pytest.raises(AssertionError, match=r"^corruption must be a fedsim\.Corruption, got function$"):
        corrupt(fedsim.corruption.flipping, data)
    message = r"^data must be a fedsim\.ClientData, got FederatedDataset; use dataset\.train$"
    with pytest.raises(AssertionError, match=message):
        corrupt(fedsim.corruption.flipping(), dataset)
    with pytest.raises(AssertionError, match=message):
        make_simulation(dataset).init(key, dataset, fedsim.HParams())
    with pytest.raises(AssertionError, match=r"^hparams must be a fedsim\.HParams, got float$"):
        make_simulation(dataset).init(key, data, 0.1)


@pytest.mark.parametrize(
    ("argument", "value", "largest"),
    [
        ("client_ids", [99], 7),
        ("client_ids", [0, -1], 7),
        ("malicious_ids", [8], 7),
        ("num_malicious", 9, 8),
        ("num_malicious", 0.5, 8),
    ],
)
def test_impossible_clients_to_corrupt_are_refused(dataset, data, argument, value, largest):
    wrong = value[-1] if isinstance(value, list) else value
    with pytest.raises(ValueError, match=rf"^{argument}: .*0 to {largest}.*got {wrong:g}$"):
        fedsim.corrupt(fedsim.corruption.flipping(), jax.random.key(0), data, dataset.spec, 1, **{argument: value})


def test_a_dropout_rate_above_1_is_refused():
    with pytest.raises(ValueError, match=r"^dropout_rate: .*got 2"):
        CharLSTM(dropout_rate=2).init(jax.random.key(0), np.zeros((1, 4), np.int32))


def test_a_column_of_labels_trains_like_labels(dataset, data):
    """[M, 1], also for test and root data."""
    column = data._replace(y=data.y[:, None])
    root = Examples(dataset.x_test[:10], dataset.y_test[:10])
    states = []
    for given, server in ((data, root), (column, Examples(root.x, root.y[:, None]))):
        simulation = make_simulation(dataset, lambda hparams: fedsim.aggregators.zeno(), root=server)
        state = simulation.init(jax.random.key(0), given, fedsim.HParams(0.1))
        states.append(jax.jit(simulation.round)(state, given, fedsim.HParams(0.1))[0])
    jax.tree.map(np.testing.assert_array_equal, *(state.variables for state in states))
    flat, in_column = (
        fedsim.evaluate(simulation.task, states[0].variables, dataset.x_test, y)
        for y in (dataset.y_test, dataset.y_test[:, None])
    )
    assert flat == in_column


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda y: jax.nn.one_hot(y, 3, dtype=int),
            r"^labels: each must have the shape \(\) .*got \(3,\); use y\.argmax",
        ),
        (lambda y: jax.nn.one_hot(y, 3), r"^labels: must be integer classes, got float32"),
        (lambda y: y.astype(float), r"^labels: must be integer classes, got float32; use y\.astype\(int\)"),
    ],
)
def test_labels_that_are_not_classes_are_refused(dataset, data, change, message):
    simulation = make_simulation(dataset)
    with pytest.raises(ValueError, match=message):
        simulation.init(jax.random.key(0), data._replace(y=change(data.y)), fedsim.HParams())


def test_targets_that_the_outputs_do_not_fit_are_refused(dataset):
    task = fedsim.regression(Linear(2), dataset.train.x[0])
    variables = task.init(jax.random.key(0))
    with pytest.raises(ValueError, match=r"^targets: must be as many as the outputs \(2,\), got \(3,\)"):
        fedsim.evaluate(task, variables, dataset.x_test, np.zeros((len(dataset.x_test), 3), np.float32))
