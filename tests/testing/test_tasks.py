"""Faulty tasks, at least one a clause, and what is said of them."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim import Metrics, Task, Variables
from fedsim.core.client import lockstep_max
from fedsim.testing import check_task, tiny
from fedsim.testing.tasks import CLAUSES
from tests.conftest import Linear, make_dataset

DATA = tiny.federation(np.random.default_rng(0))
RIGHT = tiny.task()


def ones(mask):
    return jnp.ones(mask.shape, bool)


def init(f):
    return RIGHT._replace(init=lambda key: f(RIGHT.init(key)))


def loss(f):
    """`f(loss, statistics, variables, x)` for what the loss gives."""

    def changed(variables, x, y, mask, key):
        return f(*RIGHT.loss(variables, x, y, mask, key), variables, x)

    return RIGHT._replace(loss=changed)


def metrics(f):
    return RIGHT._replace(metrics=lambda variables, x, y, mask: f(RIGHT.metrics(variables, x, y, mask), mask))


def blind(which):
    """A loss or metrics for which all examples count."""
    if which == "loss":
        return RIGHT._replace(loss=lambda variables, x, y, mask, key: RIGHT.loss(variables, x, y, ones(mask), key))
    return RIGHT._replace(
        metrics=lambda variables, x, y, mask: RIGHT.metrics(variables, x, y, ones(mask))._replace(
            num_examples=jnp.sum(mask)
        )
    )


def with_statistics(move):
    """A task whose loss moves the statistics by `move(mean, x, mask)`."""

    def moved(variables, x, y, mask, key):
        return RIGHT.loss(variables, x, y, mask, key)[0], move(variables.statistics, x, mask)

    return Task(lambda key: Variables(RIGHT.init(key).params, jnp.zeros(3)), moved, RIGHT.metrics)


def masked_mean(mean, x, mask):
    return 0.9 * mean + 0.1 * jnp.sum(jnp.where(mask[:, None], x, 0), axis=0) / jnp.maximum(jnp.sum(mask), 1)


def detached(variables, x, y, mask, key):
    """Half of the parameters get no gradient."""
    params = variables.params | {"b": jax.lax.stop_gradient(variables.params["b"])}
    return RIGHT.loss(Variables(params), x, y, mask, key)


def random_number(_=None):
    return float(np.random.rand())  # noqa: NPY002


def mean_metrics(found, mask):
    n = jnp.maximum(found.num_examples, 1)
    return found._replace(loss_sum=found.loss_sum / n)


class Normed(nn.Module):
    """Batch normalisation that takes masked examples for real ones."""

    @nn.compact
    def __call__(self, x, train=False):
        with jax.numpy_rank_promotion("allow"):
            return nn.Dense(3)(nn.BatchNorm(use_running_average=not train)(x))


def reads(frozen):
    def scaled(variables, x, y, mask):
        found = RIGHT.metrics(variables, x, y, mask)
        return found._replace(loss_sum=found.loss_sum * frozen)

    return RIGHT._replace(metrics=scaled)


FAULTY = [
    ("init", init(lambda variables: variables.params), "init gives dict, no Variables"),
    ("init", init(lambda variables: jax.tree.map(lambda a: a / 0, variables)), "the initial model is not finite"),
    ("init", init(lambda v: jax.tree.map(lambda a: a + random_number(), v)), "the same key gives another model"),
    ("loss", loss(lambda value, stats, *_: (value.astype(jnp.bfloat16), stats)), r"bfloat16\[\], not float32\[\]"),
    ("loss", loss(lambda value, stats, *_: (value / 0, stats)), "the loss is not finite"),
    ("loss", loss(lambda value, stats, v, x: (value + jnp.sqrt(jnp.sum(v.params["b"])), stats)), "the gradient is not"),
    (
        "statistics",
        with_statistics(lambda mean, x, mask: x),
        r"the loss returns is float32\[8, 3\], not",
    ),
    ("statistics", with_statistics(lambda mean, x, mask: mean / 0), "a statistic is not finite"),
    ("metrics", metrics(lambda found, mask: tuple(found)), "the metrics are tuple, no Metrics"),
    (
        "metrics",
        metrics(lambda found, mask: found._replace(loss_sum=jnp.ones(8))),
        r"loss_sum is float32\[8\], no",
    ),
    ("metrics", metrics(lambda found, mask: found._replace(num_examples=mask.size)), "num_examples is 8 of 5"),
    ("metrics", metrics(lambda found, mask: found._replace(num_correct=jnp.float32(-1))), "num_correct is -1 of 5"),
    ("deterministic", metrics(lambda f, mask: f._replace(loss_sum=random_number())), "give other metrics the second"),
    ("mask", blind("loss"), "examples that are masked change the loss, by"),
    ("mask", blind("metrics"), "examples that are masked change the metrics, by"),
    ("mask", with_statistics(lambda mean, x, mask: x.mean(axis=0)), "that are masked change the statistics, by"),
    ("mask", metrics(lambda f, mask: f._replace(loss_sum=f.loss_sum + 1)), "with all examples masked loss_sum is not"),
    ("mask", fedsim.classification(Normed(), np.asarray(DATA.x[0])), "examples that are masked change the loss"),
    ("merge", metrics(mean_metrics), "the metrics of two halves of a batch do not sum to those of the batch, by"),
    ("difference", RIGHT._replace(loss=detached), "the gradient along a direction is .*, a finite difference of"),
    ("vmap", metrics(lambda f, mask: Metrics(*map(lockstep_max, f))), "inside jax.vmap, are not those of each, by"),
    ("frozen", RIGHT._replace(frozen=jnp.ones(3)), "there are frozen arrays, but no bind"),
    ("frozen", reads(1.0)._replace(frozen=jnp.float32(2), bind=reads), "bound to its own frozen arrays it gives other"),
]


@pytest.mark.parametrize(("clause", "task", "message"), FAULTY)
def test_a_faulty_task_is_caught(clause, task, message):
    with pytest.raises(AssertionError, match=f"^{clause}: .*({message})") as caught:
        check_task(task, (DATA.x, DATA.y), skip=set(CLAUSES) - {clause})
    assert "\n" not in str(caught.value)


def test_too_few_outputs_are_caught():
    """A label without an output is all zeros as a one-hot: no loss, so nothing is learnt and all looks well."""
    dataset = make_dataset()
    task = fedsim.classification(Linear(2), dataset.train.x[0])
    with pytest.raises(AssertionError, match=r"^outputs: examples of the largest class, 2, have no loss"):
        check_task(task, dataset)
    with pytest.raises(AssertionError, match=r"^outputs: examples of the largest class, 2,"):
        check_task(task, (dataset.train.x, dataset.train.y))
    check_task(fedsim.classification(Linear(), dataset.train.x[0]), dataset)


def test_every_clause_catches_something():
    assert {clause for clause, _, _ in FAULTY} | {"outputs"} == set(CLAUSES)


def test_right_ones():
    check_task(with_statistics(masked_mean), (DATA.x, DATA.y))
    frozen = reads(jnp.float32(1))._replace(frozen=jnp.float32(1), bind=reads)
    check_task(frozen, (DATA.x, DATA.y), skip={"difference", "loss"})
