"""Faulty tasks, at least one per clause, and the messages about them; `test_built_in.py` runs them."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim import Task, Variables
from fedsim.core.client import lockstep_max
from fedsim.testing import check_task, tiny
from tests.conftest import Linear, make_dataset

DATA = tiny.draw_data(np.random.default_rng(0))
EXAMPLES = DATA.x, DATA.y
TASK = tiny.make_task()


def metrics(f):
    return TASK._replace(metrics=lambda variables, x, y, mask: f(TASK.metrics(variables, x, y, mask), mask))


def half_precision(variables, x, y, mask, key):
    value, statistics = TASK.loss(variables, x, y, mask, key)
    return value.astype(jnp.bfloat16), statistics


def unmasked(variables, x, y, mask, key):
    return TASK.loss(variables, x, y, jnp.ones(mask.shape, bool), key)


def with_statistics(update):
    """A task whose loss updates the statistics by `update(mean, x, mask)`."""

    def loss(variables, x, y, mask, key):
        return TASK.loss(Variables(variables.params), x, y, mask, key)[0], update(variables.statistics, x, mask)

    metrics = lambda variables, *batch: TASK.metrics(Variables(variables.params), *batch)
    return Task(lambda key: Variables(TASK.init(key).params, jnp.zeros(3)), loss, metrics)


def masked_mean(mean, x, mask):
    return 0.9 * mean + 0.1 * jnp.sum(jnp.where(mask[:, None], x, 0), axis=0) / jnp.maximum(jnp.sum(mask), 1)


def detached(variables, x, y, mask, key):
    """The bias gets no gradient."""
    params = variables.params | {"bias": jax.lax.stop_gradient(variables.params["bias"])}
    return TASK.loss(Variables(params), x, y, mask, key)


def padded_mean(variables, x, y, mask, key):
    mean, statistics = TASK.loss(variables, x, y, mask, key)
    return mean * mask.mean(), statistics


def random_number(_=None):
    return float(np.random.rand())  # noqa: NPY002


def mean_metrics(metrics, mask):
    return metrics._replace(loss_sum=metrics.loss_sum / jnp.maximum(metrics.num_examples, 1))


CENTERED = nn.Sequential([lambda x: x - x.mean(axis=0, keepdims=True), nn.Dense(3)])  # by batches, ignoring the mask


def scale_loss(frozen):
    return metrics(lambda metrics, mask: metrics._replace(loss_sum=metrics.loss_sum * frozen))


FAULTY = [
    ("init", TASK._replace(init=lambda key: TASK.init(key).params), "init must return Variables, got dict"),
    ("loss", TASK._replace(loss=half_precision), r"the loss must be float32\[\], got bfloat16\[\]"),
    (
        "statistics",
        with_statistics(lambda mean, x, mask: x),
        r"the returned statistics must be float32\[3\], got float32\[8, 3\]",
    ),
    (
        "metrics",
        metrics(lambda metrics_, mask: metrics_._replace(num_examples=mask.size)),
        "num_examples must be 5, the unmasked ones, got 8",
    ),
    (
        "deterministic",
        metrics(lambda f, mask: f._replace(loss_sum=random_number())),
        "must give the same metrics, but a second call differs",
    ),
    ("mask", TASK._replace(loss=unmasked), "the loss must not depend on masked examples, but differs: by"),
    ("mask", fedsim.classification(CENTERED, np.asarray(DATA.x[0])), "the loss must not depend on masked examples"),
    ("mean", TASK._replace(loss=padded_mean), "the loss must be a mean over the unmasked examples, but those twice"),
    (
        "additive",
        metrics(mean_metrics),
        "the metrics of a batch must be the sum of those of its halves, but differ: by",
    ),
    ("gradient", TASK._replace(loss=detached), "the slope along a direction must be .*, by finite differences, got"),
    ("vmap", metrics(lambda f, mask: jax.tree.map(lockstep_max, f)), "inside jax.vmap the result differs .*: by"),
    (
        "metrics",
        metrics(lambda f, mask: f._replace(named={"a": (mask, f.num_correct)})),
        r"named\.a\.0 must be a scalar",
    ),
    ("outputs", fedsim.classification(nn.Dense(2), DATA.x[0]), "the loss must be positive for label 2; does the model"),
    (
        "frozen",
        scale_loss(1.0)._replace(frozen=jnp.float32(2), bind=scale_loss),
        "bound to its frozen arrays the task must give the same metrics",
    ),
]


def test_too_few_outputs_for_the_classes_of_a_data_set_are_detected():
    """A label without an output is a one-hot vector of zeros: its loss is 0, and nothing is learned."""
    dataset = make_dataset()
    with pytest.raises(AssertionError, match=r"^outputs: the loss must be positive for label 2"):
        check_task(fedsim.classification(Linear(2), dataset.train.x[0]), dataset)
    check_task(fedsim.classification(Linear(), dataset.train.x[0]), dataset)


@pytest.mark.parametrize("data", [None, (DATA.x,), (DATA.x, DATA.y[:5]), (DATA.x[:0], DATA.y[:0]), (1, 2)])
def test_data_without_examples_are_refused(data):
    with pytest.raises(ValueError, match=r"^data: .*must (be|have) .*, got "):
        check_task(TASK, data)


def test_tasks_with_statistics_or_frozen_arrays_pass():
    check_task(with_statistics(masked_mean), EXAMPLES)
    frozen = scale_loss(jnp.float32(1))._replace(frozen=jnp.float32(1), bind=scale_loss)
    check_task(frozen, EXAMPLES, skip={"gradient", "loss"})
