"""One client: local SGD and the training loss against a plain float64 loop in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedsim.core.client import client_loss, local_sgd, lockstep_max, random_order
from fedsim.core.task import classification
from fedsim.core.types import Client
from fedsim.core.waves import by_size, map_clients, sample_cohort
from tests.conftest import COUNTS, Linear

BATCH, EPOCHS, RATE = 4, 2, 0.3


@pytest.fixture(scope="module")
def task(dataset):
    return classification(Linear(), dataset.train.x[0])


@pytest.fixture(scope="module")
def params(task):
    return task.init(jax.random.key(3))


def client_of(data, i) -> Client:
    return Client(jnp.int32(i), data.offsets[i], data.counts[i])


def softmax_gradient(w, b, x, y):
    logits = x @ w + b
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    error = (p - np.eye(3)[y]) / len(y)
    return x.T @ error, error.sum(0)


def plain_sgd(params, x, y, key, max_count):
    """The same SGD by a loop; only the order of the examples is taken from fedsim."""
    w, b = (np.asarray(params["Dense_0"][name], np.float64) for name in ("kernel", "bias"))
    slots = -(-max_count // BATCH) * BATCH
    for epoch in range(EPOCHS):
        shuffle_key, _ = jax.random.split(jax.random.fold_in(key, epoch))
        order = np.asarray(random_order(shuffle_key, len(y), slots))[: len(y)]
        assert sorted(order) == list(range(len(y)))
        for start in range(0, len(y), BATCH):
            batch = order[start : start + BATCH]
            gw, gb = softmax_gradient(w, b, x[batch].astype(np.float64), y[batch])
            w, b = w - RATE * gw, b - RATE * gb
    return w, b


@pytest.fixture(scope="module")
def train(task, dataset):
    @jax.jit
    def one(params, data, client, key):
        return local_sgd(
            task, optax.sgd(RATE), params, data, client, key,
            epochs=EPOCHS, batch_size=BATCH, max_count=dataset.max_count,
        )  # fmt: skip

    return one


@pytest.mark.parametrize("i", range(len(COUNTS)))  # m = 1, m < B, m = B, m a multiple of B, and ragged
def test_local_sgd_is_a_plain_loop(i, dataset, data, params, train):
    key = jax.random.key(i)
    update = train(params, data, client_of(data, i), key)
    part = slice(int(data.offsets[i]), int(data.offsets[i] + data.counts[i]))
    w, b = plain_sgd(params, dataset.train.x[part], dataset.train.y[part], key, dataset.max_count)
    np.testing.assert_allclose(update["Dense_0"]["kernel"], w - params["Dense_0"]["kernel"], atol=2e-6)
    np.testing.assert_allclose(update["Dense_0"]["bias"], b - params["Dense_0"]["bias"], atol=2e-6)


def test_clients_in_lockstep_do_not_change_each_other(data, params, train):
    """Under vmap the largest client sets the number of steps; the others wait, momentum and all."""
    everybody = Client(jnp.arange(len(COUNTS)), data.offsets, data.counts)
    keys = jax.vmap(jax.random.key)(jnp.arange(len(COUNTS)))
    together = jax.vmap(train, in_axes=(None, None, 0, 0))(params, data, everybody, keys)
    for i in range(len(COUNTS)):
        alone = train(params, data, client_of(data, i), keys[i])
        np.testing.assert_allclose(together["Dense_0"]["kernel"][i], alone["Dense_0"]["kernel"], rtol=1e-5, atol=1e-6)


def test_waiting_client_keeps_its_optimizer_state(task, data, params, dataset):
    """With momentum an idle step would move the parameters."""
    optimizer = optax.sgd(RATE, momentum=0.9)
    options = {"epochs": 1, "batch_size": BATCH, "max_count": dataset.max_count}
    run = lambda client: local_sgd(task, optimizer, params, data, client, jax.random.key(0), **options)
    clients = Client(jnp.asarray([1, 7]), data.offsets[jnp.asarray([1, 7])], data.counts[jnp.asarray([1, 7])])
    together = jax.jit(jax.vmap(run))(clients)
    alone = jax.jit(run)(client_of(data, 1))
    np.testing.assert_allclose(together["Dense_0"]["kernel"][0], alone["Dense_0"]["kernel"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_client_loss_is_the_mean(batch_size, task, data, params, dataset):
    losses = jax.jit(jax.vmap(lambda client: client_loss(task, params, data, client, batch_size)))(
        Client(jnp.arange(len(COUNTS)), data.offsets, data.counts)
    )
    x, y = dataset.train.x.astype(np.float64), dataset.train.y
    logits = x @ np.asarray(params["Dense_0"]["kernel"], np.float64)
    each = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]
    expected = [part.mean() for part in np.split(each, np.cumsum(COUNTS)[:-1])]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_random_order_is_uniform():
    """All 3! orders of three examples among five slots, about equally often."""
    orders = jax.vmap(lambda key: random_order(key, jnp.int32(3), 5))(jax.random.split(jax.random.key(0), 6000))
    assert np.asarray(orders[:, 3:] == jnp.asarray([[3, 4]])).all()
    _, counts = np.unique(np.asarray(orders[:, :3]), axis=0, return_counts=True)
    assert len(counts) == 6
    assert abs(counts - 1000).max() < 5 * np.sqrt(1000)


def test_loop_bound_stays_unbatched_under_nested_vmap():
    """A batched bound would turn the loop into a select over its carry; its condition would then be an array."""

    def loop(n, x):
        return jax.lax.fori_loop(0, lockstep_max(n), lambda i, x: x + 1, x)

    n = jnp.arange(6).reshape(2, 3)
    both = jax.vmap(jax.vmap(loop))
    np.testing.assert_array_equal(both(n, jnp.zeros((2, 3))), np.full((2, 3), 5))  # lockstep: everybody runs 5 steps
    (loop_eqn,) = [e for e in jax.make_jaxpr(both)(n, jnp.zeros((2, 3))).eqns if e.primitive.name == "while"]
    assert loop_eqn.params["cond_jaxpr"].out_avals[0].shape == ()
    shapes = [v.aval.shape for v in loop_eqn.params["body_jaxpr"].jaxpr.outvars]
    assert sorted(shapes) == [(), (), (2, 3)]


@pytest.mark.parametrize("width", [1, 3, 5, 8, 20])
def test_waves_return_every_client_once(width, data):
    clients = by_size(data, jnp.arange(len(COUNTS)))
    got = map_clients(lambda c: (c.client_id, c.num_examples), clients, width)
    np.testing.assert_array_equal(got[0], clients.client_id)
    np.testing.assert_array_equal(got[1], np.sort(COUNTS)[::-1])


def test_a_wave_runs_as_long_as_its_own_largest(data):
    """Steps seen by each client: the largest of its wave, not of the cohort."""
    clients = by_size(data, jnp.arange(len(COUNTS)))
    steps = map_clients(lambda c: lockstep_max(c.num_examples) + 0 * c.client_id, clients, 3)
    np.testing.assert_array_equal(steps, [17, 17, 17, 8, 8, 8, 3, 3])


def test_cohort_is_uniform_without_replacement(data):
    keys = jax.random.split(jax.random.key(1), 4000)
    ids = np.asarray(jax.jit(jax.vmap(lambda key: sample_cohort(key, data, 3).client_id))(keys))
    assert (np.sort(ids, axis=1)[:, 1:] != np.sort(ids, axis=1)[:, :-1]).all()
    frequency = np.bincount(ids.ravel(), minlength=8) / 4000
    assert abs(frequency - 3 / 8).max() < 5 * np.sqrt(3 / 8 * 5 / 8 / 4000)


def test_clients_without_examples_come_only_when_others_run_out(data):
    few = data._replace(counts=data.counts.at[jnp.asarray([0, 2, 4, 5, 6, 7])].set(0))
    cohort = sample_cohort(jax.random.key(0), few, 4)
    assert set(np.asarray(cohort.client_id[:2]).tolist()) == {1, 3}
    np.testing.assert_array_equal(cohort.num_examples[2:], [0, 0])
