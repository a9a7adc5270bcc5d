"""Augmentation, element-wise clipping, and accuracy by client, against plain NumPy."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim.config.schema import Config
from fedsim.config.sections import ClientConfig, ServerConfig
from fedsim.core.evaluate import accuracy_percentiles, evaluate, evaluate_clients
from fedsim.core.task import shift_flip
from fedsim.engine import build
from fedsim.engine.data import load_dataset
from fedsim.models import MLP
from tests.conftest import Linear

SIZE = 20  # a tenth of it is 2


def shifted(image, dy, dx, flip):
    """Keras: the border is repeated; then left to right."""
    padded = np.pad(image, ((2, 2), (2, 2), (0, 0)), mode="edge")
    moved = padded[2 + dy : 2 + dy + SIZE, 2 + dx : 2 + dx + SIZE]
    return moved[:, ::-1] if flip else moved


def test_augmentation_is_every_shift_up_to_a_tenth_and_every_flip():
    """Of 300 copies of one image with distinct pixels."""
    image = np.arange(SIZE * SIZE * 2, dtype=np.int32).reshape(SIZE, SIZE, 2)
    x = jnp.asarray(np.broadcast_to(image, (300, SIZE, SIZE, 2)))
    outputs = np.asarray(jax.jit(shift_flip)(jax.random.key(1), x))
    expected = {
        shifted(image, dy, dx, flip).tobytes(): (dy, dx, flip)
        for dy in range(-2, 3)
        for dx in range(-2, 3)
        for flip in (False, True)
    }
    seen = [expected[np.ascontiguousarray(output).tobytes()] for output in outputs]  # KeyError: something else
    assert len(set(seen)) == 50  # of 300 draws
    assert 0.4 < np.mean([flip for _, _, flip in seen]) < 0.6


def test_augmentation_is_for_training_only():
    x = np.random.default_rng(0).integers(0, 256, (8, 12, 12, 1), dtype=np.uint8)
    y, mask = np.arange(8) % 3, np.ones(8, bool)
    plain, augmenting = (fedsim.classification(MLP(3, ()), x[0], augment) for augment in (None, shift_flip))
    variables = plain.init(jax.random.key(0))
    assert plain.metrics(variables, x, y, mask) == augmenting.metrics(variables, x, y, mask)
    loss = lambda task, seed: float(task.loss(variables, x, y, mask, jax.random.key(seed))[0])
    assert len({loss(augmenting, seed) for seed in range(4)} | {loss(plain, 0)}) == 5


def test_configuration_reaches_local_training():
    """A round with augmentation gives another model than one without; tests of algorithms show the other keys."""
    config = Config(server=ServerConfig(cohort_size=2, aggregator="fedavg"), settings=(("mlp.hidden_sizes", (4,)),))
    digits = load_dataset(config)

    def moved(**client):
        simulation = build.simulation(replace(config, client=ClientConfig(**client)), digits)
        begin = lambda: simulation.init(jax.random.key(0), digits.train, fedsim.HParams())
        after, _ = jax.jit(lambda: simulation.round(begin(), digits.train, fedsim.HParams()))()
        return after.variables.params["Dense_0"]["kernel"]

    assert np.abs(moved() - moved(augmentation="shift_flip")).max() > 1e-3


def predicted(variables, x):
    layer = variables.params["Dense_0"]
    return (x @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"])).argmax(axis=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x[:0], y[:0]), "x: must have examples, got none"),
        (lambda x, y: (x, y[:5]), "y: must have a target for each of 40 examples, got 5"),
        (lambda x, y: (x, y + 1), "task: the model has 3 outputs, so labels must be 0 to 2, got 3"),
        (lambda x, y: (x, y, 0), "batch_size: must be at least 1, got 0"),
    ],
)
def test_examples_that_cannot_be_evaluated_are_refused(change, message, dataset):
    task = fedsim.classification(Linear(), dataset.train.x[0])
    with pytest.raises(ValueError, match=message):
        fedsim.evaluate(task, task.init(jax.random.key(7)), *change(dataset.x_test, dataset.y_test))
    with pytest.raises(AssertionError, match=r"variables must be a fedsim\.Variables, got dict; use state\.variables"):
        fedsim.evaluate(task, {}, dataset.x_test, dataset.y_test)


def test_outputs_that_are_nan_are_never_correct(dataset):
    """Though their argmax is class 0."""
    task = fedsim.classification(Linear(), dataset.train.x[0])
    lost = jax.tree.map(lambda a: a * np.nan, task.init(jax.random.key(7)))
    assert fedsim.evaluate(task, lost, dataset.x_test, 0 * dataset.y_test).num_correct == 0


@pytest.mark.parametrize("batch_size", [3, 7, 40, 1000])
def test_evaluation_counts_every_example_once(batch_size, dataset):
    task = fedsim.classification(Linear(), dataset.train.x[0])
    variables = task.init(jax.random.key(7))
    metrics = fedsim.evaluate(task, variables, dataset.x_test, dataset.y_test, batch_size)
    assert int(metrics.num_examples) == 40
    assert int(metrics.num_correct) == (predicted(variables, dataset.x_test) == dataset.y_test).sum()


def test_metrics_by_client_sum_to_those_of_all(dataset):
    task = fedsim.classification(Linear(), dataset.train.x[0])
    variables = task.init(jax.random.key(0))
    clients = np.random.default_rng(0).integers(0, 5, len(dataset.y_test))
    by_client = evaluate_clients(task, variables, dataset.x_test, dataset.y_test, clients, 6)
    all_clients = evaluate(task, variables, dataset.x_test, dataset.y_test)
    assert int(by_client.num_correct.sum()) == int(all_clients.num_correct)
    np.testing.assert_allclose(by_client.loss_sum.sum(), all_clients.loss_sum, rtol=1e-5)
    right = predicted(variables, dataset.x_test) == dataset.y_test
    for client in range(6):
        assert int(by_client.num_correct[client]) == right[clients == client].sum()
        assert int(by_client.num_examples[client]) == (clients == client).sum()


def test_percentiles_are_over_clients_with_test_examples():
    num_correct, num_examples = np.asarray([[1, 0, 3, 0], [2, 0, 0, 5]]), np.asarray([[2, 0, 4, 5], [2, 0, 4, 5]])
    expected = [np.percentile([0.5, 0.75, 0], (10, 50, 90)), np.percentile([1, 0, 1], (10, 50, 90))]
    np.testing.assert_allclose(accuracy_percentiles(num_correct, num_examples), expected)
