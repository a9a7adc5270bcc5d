"""Batch statistics: moved by each training step, averaged over clients like parameters, and no optimizer's business."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedsim
from fedsim.core.trees import weighted_sum
from tests.conftest import build_simulation, make_dataset

COUNTS = (2, 3, 5, 8)
MOMENTUM, RATE, EPOCHS = 0.8, 0.2, 2


class Normed(nn.Module):
    """Softmax regression on inputs normalized by batch."""

    @nn.compact
    def __call__(self, x, train=False, mask=None):
        with jax.numpy_rank_promotion("allow"):
            mask = None if mask is None else mask[:, None]
            norm = nn.BatchNorm(use_running_average=not train, momentum=MOMENTUM, use_bias=False, use_scale=False)
            return nn.Dense(3)(norm(x, mask=mask))


@pytest.fixture(scope="module")
def dataset():
    return make_dataset(COUNTS, num_features=3)


@pytest.fixture(scope="module")
def data(dataset):
    return jax.tree.map(jnp.asarray, dataset.train)


@pytest.fixture(scope="module")
def task(dataset):
    return fedsim.classification(Normed(), dataset.train.x[0])


def client_statistics(data, batches_of):
    """flax's running means and variances [2, N, ...], in float64; `batches_of` cuts a client's examples."""
    of_clients = []
    for examples in np.split(np.asarray(data.x, np.float64), np.cumsum(COUNTS)[:-1]):
        of_clients.append(np.stack([np.zeros(3), np.ones(3)]))
        for x in EPOCHS * batches_of(examples):
            of_clients[-1] = MOMENTUM * of_clients[-1] + (1 - MOMENTUM) * np.stack([x.mean(axis=0), x.var(axis=0)])
    return np.stack(of_clients, axis=1)


def norm_statistics(variables):
    stats = variables.statistics["batch_stats"]["BatchNorm_0"]
    return np.asarray(stats["mean"]), np.asarray(stats["var"])


def one_round(task, data, **options):
    """FedAvg of all clients, with full batches by default."""
    defaults = {
        "cohort_size": len(COUNTS),
        "batch_size": max(COUNTS),
        "max_num_examples": max(COUNTS),
        "epochs": EPOCHS,
    }
    simulation = build_simulation(task, lambda hparams: fedsim.aggregators.fedavg(), **(defaults | options))

    def run(data):
        before = simulation.init(jax.random.key(0), data, fedsim.HParams(RATE))
        return before, *simulation.round(before, data, fedsim.HParams(RATE))

    return jax.jit(run)(data)


@pytest.fixture(scope="module")
def averaged(task, data):
    return one_round(task, data)


def test_the_server_averages_statistics(averaged, data):
    before, after, record = averaged
    np.testing.assert_array_equal(norm_statistics(before.variables), [np.zeros(3), np.ones(3)])
    expected = [np.average(a, axis=0, weights=COUNTS) for a in client_statistics(data, lambda x: [x])]
    np.testing.assert_allclose(norm_statistics(after.variables), expected, rtol=1e-5, atol=1e-6)
    assert record.valid.all()


def test_the_server_optimizer_steps_on_parameters_only(averaged, task, data):
    _, plain, _ = averaged
    before, twice, _ = one_round(task, data, server_optimizer=lambda hparams: optax.sgd(2.0))
    np.testing.assert_allclose(norm_statistics(twice.variables), norm_statistics(plain.variables), rtol=1e-6)
    kernel = lambda state: np.asarray(state.variables.params["Dense_0"]["kernel"])
    np.testing.assert_allclose(kernel(twice) - kernel(before), 2 * (kernel(plain) - kernel(before)), rtol=1e-4)


def test_each_micro_batch_updates_the_statistics(task, data):
    """A client of one example, repeated: the order does not matter. It waits for larger ones without being touched."""
    repeated = data._replace(x=data.x[data.offsets[np.repeat(np.arange(len(COUNTS)), COUNTS)]])
    _, after, record = one_round(task, repeated, micro_batch=2, batch_size=4)
    micro_batches = lambda x: [x[:1]] * -(-len(x) // 2)  # 4 + 4 of 8 examples, and 4 + 1 of 5: micro-batches of 2
    expected = [np.average(a, axis=0, weights=COUNTS) for a in client_statistics(repeated, micro_batches)]
    np.testing.assert_allclose(norm_statistics(after.variables), expected, rtol=1e-5, atol=1e-6)
    assert record.valid.all()


def test_means_of_integer_statistics_are_rounded():
    means = weighted_sum(jnp.asarray([0.25, 0.75]), jnp.asarray([[1, 5], [2, 4]]))
    assert (means.dtype, means.tolist()) == (jnp.int32, [2, 4])
