"""One client: local SGD and the training loss against a plain float64 loop in NumPy."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from fedsim.core.client import batch_gradient, client_loss, lockstep_max
from fedsim.core.local import LocalSGD, random_order
from fedsim.core.options import TrainingOptions
from fedsim.core.task import classification
from fedsim.core.types import ClientSlice
from fedsim.core.waves import DRAWS_MULTIPLE, by_size, drop_out, map_clients, sample_cohort
from tests.conftest import COUNTS, Linear

BATCH, EPOCHS, RATE = 4, 2, 0.3


@pytest.fixture(scope="module")
def task(dataset):
    return classification(Linear(), dataset.train.x[0])


@pytest.fixture(scope="module")
def variables(task):
    return task.init(jax.random.key(3))


def client_of(data, i) -> ClientSlice:
    return ClientSlice(jnp.int32(i), data.offsets[i], data.num_examples[i])


def all_clients(data) -> ClientSlice:
    return ClientSlice(jnp.arange(len(COUNTS)), data.offsets, data.num_examples)


def local_sgd(task, dataset, optimizer=None, **options) -> LocalSGD:
    """Training in batches of `BATCH`, by default of plain SGD for some epochs."""
    sizes = {"epochs": EPOCHS, "batch_size": BATCH, "max_num_examples": dataset.max_num_examples}
    return LocalSGD(task, optimizer or optax.sgd(RATE), TrainingOptions(**sizes | options))


def softmax_gradient(w, b, x, y):
    error = (softmax(x @ w + b, axis=1) - np.eye(3)[y]) / len(y)
    return x.T @ error, error.sum(0)


def plain_sgd(variables, x, y, key, max_num_examples, epochs, most):
    """The same SGD by a loop, `most` steps of it; only the order of the examples is taken from fedsim."""
    w, b = (np.asarray(variables.params["Dense_0"][name], np.float64) for name in ("kernel", "bias"))
    positions, batches = -(-max_num_examples // BATCH) * BATCH, []
    for epoch in range(epochs):
        shuffle_key, _ = jax.random.split(jax.random.fold_in(key, epoch))
        order = np.asarray(random_order(shuffle_key, len(y), positions))[: len(y)]
        assert sorted(order) == list(range(len(y)))
        batches += [order[start : start + BATCH] for start in range(0, len(y), BATCH)]
    for batch in batches[:most]:
        gw, gb = softmax_gradient(w, b, x[batch].astype(np.float64), y[batch])
        w, b = w - RATE * gw, b - RATE * gb
    return w, b


@pytest.mark.parametrize("options", [{}, {"steps": 1}, {"steps": 7}])
def test_local_sgd_equals_a_numpy_loop(options, dataset, data, variables, task):
    """All clients in lockstep. With `steps`, these are the first ones of enough epochs."""
    num_steps = options.get("steps")
    sgd = local_sgd(task, dataset, **options)
    keys = jax.vmap(jax.random.key)(jnp.arange(len(COUNTS)))
    train = jax.jit(jax.vmap(sgd.train, (None, None, 0, 0)))
    trained = train(variables, data, all_clients(data), keys).params["Dense_0"]
    for i, count in enumerate(COUNTS):  # m = 1, m < B, m = B, m a multiple of B, and ragged
        part = slice(int(data.offsets[i]), int(data.offsets[i]) + count)
        x, y = dataset.train.x[part], dataset.train.y[part]
        w, b = plain_sgd(variables, x, y, keys[i], dataset.max_num_examples, num_steps or EPOCHS, num_steps)
        np.testing.assert_allclose(trained["kernel"][i], w, atol=2e-6)
        np.testing.assert_allclose(trained["bias"][i], b, atol=2e-6)
        assert int(sgd.num_steps(client_of(data, i))) == (num_steps or EPOCHS * -(-count // BATCH))
    assert int(sgd.num_steps(ClientSlice(jnp.int32(0), jnp.int32(0), jnp.int32(0)))) == 0


def test_the_steps_of_whole_epochs_equal_these_epochs(task, dataset, data, variables):
    """Bit for bit, with a key for each step that matters: here it is noise on the gradient."""
    noisy = task._replace(loss=lambda v, x, y, mask, key: _with_noise(task.loss(v, x, y, mask, key), v, key))
    start = variables, data, client_of(data, 5), jax.random.key(2)  # nine examples, three steps an epoch
    trained = lambda task, **steps: jax.jit(local_sgd(task, dataset, **steps).train)(*start)
    whole, plain = trained(noisy), trained(task)
    chex.assert_trees_all_equal(whole, trained(noisy, steps=3 * EPOCHS))
    assert float(jnp.abs(plain.params["Dense_0"]["bias"] - whole.params["Dense_0"]["bias"]).max()) > 1e-3


def _with_noise(loss, variables, key):
    return loss[0] + jnp.sum(jax.random.normal(key, (3,)) * variables.params["Dense_0"]["bias"]), loss[1]


def _only_noise(variables, x, y, mask, key):
    return _with_noise((0.0, variables.statistics), variables, key)


def test_each_step_of_each_epoch_has_random_numbers_of_its_own(task, dataset, data, variables):
    noise = task._replace(loss=_only_noise)
    train = lambda steps: local_sgd(noise, dataset, steps=steps).train  # two epochs of three steps
    start = variables, data, client_of(data, 5), jax.random.key(2)
    biases = [jax.jit(train(steps))(*start).params["Dense_0"]["bias"] for steps in range(1, 7)]
    assert len(np.unique(np.diff(biases, axis=0).round(5), axis=0)) == 5


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_client_loss_is_the_mean(batch_size, task, data, variables, dataset):
    losses = jax.jit(jax.vmap(lambda client: client_loss(task, variables, data, client, batch_size)))(all_clients(data))
    x, y = dataset.train.x.astype(np.float64), dataset.train.y
    logits = x @ np.asarray(variables.params["Dense_0"]["kernel"], np.float64)
    each = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]
    expected = [part.mean() for part in np.split(each, np.cumsum(COUNTS)[:-1])]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


@pytest.mark.parametrize("count", [0, 3, 40])
def test_random_order_with_num_first_is_a_prefix(count):
    """Of 40 positions the first 7, also where they are more than the client has examples."""
    orders = jax.jit(jax.vmap(lambda key: (random_order(key, count, 40), random_order(key, count, 40, 7))))
    whole, first = orders(jax.random.split(jax.random.key(1), 50))
    np.testing.assert_array_equal(first, whole[:, :7])


@partial(jax.jit, static_argnums=2)
def order_and_draws(key, num_examples, length):
    return random_order(key, num_examples, length), jax.random.uniform(key, (length,))


@given(seed=st.integers(0, 2**31 - 1), length=st.sampled_from([1, 7, 96, 512]), share=st.floats(0, 1))
@settings(max_examples=100)
def test_random_order_sorts_uniform_draws(seed, length, share):
    """Small orders are sorted as integers: a stable sort of the same draws as numbers gives the same."""
    num_examples = round(share * length)
    order, draws = order_and_draws(jax.random.key(seed), np.int32(num_examples), length)
    expected = [*np.argsort(np.asarray(draws)[:num_examples], kind="stable"), *range(num_examples, length)]
    assert order.tolist() == expected


def test_loop_bound_stays_unbatched_under_nested_vmap():
    """A batched bound would turn the loop into a select over its carry; its condition would then be an array."""

    def loop(n, x):
        return jax.lax.fori_loop(0, lockstep_max(n), lambda i, x: x + 1, x)

    n = jnp.arange(6).reshape(2, 3)
    both = jax.vmap(jax.vmap(loop))
    np.testing.assert_array_equal(both(n, jnp.zeros((2, 3))), np.full((2, 3), 5))  # lockstep: all run 5 steps
    (loop_eqn,) = [e for e in jax.make_jaxpr(both)(n, jnp.zeros((2, 3))).eqns if e.primitive.name == "while"]
    assert loop_eqn.params["cond_jaxpr"].out_avals[0].shape == ()
    shapes = [v.aval.shape for v in loop_eqn.params["body_jaxpr"].jaxpr.outvars]
    assert sorted(shapes) == [(), (), (2, 3)]


@pytest.mark.parametrize("width", [1, 3, 5, 8, 20])
def test_waves_return_every_client_once(width, data):
    clients = by_size(data, jnp.arange(len(COUNTS)))
    actual = map_clients(lambda c: (c.client_id, c.num_examples), (clients,), width)
    np.testing.assert_array_equal(actual[0], clients.client_id)
    np.testing.assert_array_equal(actual[1], np.sort(COUNTS)[::-1])


def test_a_wave_runs_as_long_as_its_own_largest(data):
    """Steps seen by each client: the largest of its wave, not of the cohort."""
    clients = by_size(data, jnp.arange(len(COUNTS)))
    steps = map_clients(lambda c: lockstep_max(c.num_examples) + 0 * c.client_id, (clients,), 3)
    np.testing.assert_array_equal(steps, [17, 17, 17, 8, 8, 8, 3, 3])


def by_top_k(key, num_examples, cohort_size):
    """The first of a stable sort: descending draws, then ascending ids."""
    draws = np.where(num_examples > 0, np.asarray(jax.random.uniform(key, num_examples.shape)), -1)
    return np.argsort(-draws, kind="stable")[:cohort_size]


@pytest.mark.parametrize("num_clients", [10, DRAWS_MULTIPLE, 1_000_003])
def test_cohorts_are_those_of_exactly_as_many_draws(num_clients):
    """Of a batch of runs, too; uniforms of a million clients have ties. Clients without examples fill a cohort."""
    rng = np.random.default_rng(0)
    num_examples = np.where(rng.random(num_clients) < 0.4, 0, rng.integers(1, 9, num_clients)).astype(np.int32)
    keys = jax.random.split(jax.random.key(1), 3)
    batch = jax.jit(jax.vmap(lambda key: sample_cohort(key, jnp.asarray(num_examples), 9)))(keys)
    np.testing.assert_array_equal(batch, [by_top_k(key, num_examples, 9) for key in keys])


def test_each_micro_batch_has_random_numbers_of_its_own(task, data, variables):
    key, batch = jax.random.key(2), jnp.arange(4)
    noise = task._replace(loss=_only_noise)
    gradient, _ = batch_gradient(noise, variables, data, client_of(data, 5), batch, key, 2)
    expected = np.mean([jax.random.normal(jax.random.fold_in(key, j), (3,)) for j in range(2)], axis=0)
    np.testing.assert_allclose(gradient["Dense_0"]["bias"], expected, rtol=1e-5)


def test_clients_drop_out_independently():
    ids = jnp.arange(1000)
    answered = drop_out(ClientSlice(ids, ids, jnp.ones(1000, jnp.int32)), 0.3, jax.random.key(0))
    assert abs(int(answered.sum()) - 700) < 5 * np.sqrt(1000 * 0.3 * 0.7)
    shuffled = drop_out(ClientSlice(ids[::-1], ids, jnp.ones(1000, jnp.int32)), 0.3, jax.random.key(0))
    np.testing.assert_array_equal(shuffled[::-1], answered)  # whatever the order
