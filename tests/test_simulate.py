"""The round and the loop over rounds: identities that hold whatever the model."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedsim
from fedsim.aggregators import AGGREGATORS
from fedsim.core.client import local_sgd
from fedsim.core.simulation import Simulation
from fedsim.core.types import Client, HParams
from tests.conftest import COUNTS, make_dataset, make_simulation

KEY = jax.random.key(7)
H = HParams(learning_rate=0.2, lam=1.0)
ROUNDS = 4


def train(simulation: Simulation, data, hparams=H, key=KEY, rounds=ROUNDS):
    state = simulation.init(key, data, hparams)
    return simulation.run(state, data, hparams, rounds)


def fedavg(hparams):
    return fedsim.aggregators.fedavg()


@pytest.fixture(scope="module")
def reference(dataset, data):
    return jax.jit(lambda: train(make_simulation(dataset), data))()


@pytest.mark.parametrize("width", [1, 3, 5])
def test_widths_agree(width, dataset, data, reference):
    simulation = make_simulation(dataset, client_width=width)
    got = jax.jit(lambda: train(simulation, data))()
    chex.assert_trees_all_close(got[0].params, reference[0].params, rtol=1e-4, atol=1e-6)
    chex.assert_trees_all_close(got[1], reference[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("width", "micro_batch"), [(1, 1), (1, 3), (5, 3)])
def test_micro_batches_change_rounding_only(width, micro_batch, dataset, data, reference):
    """Batches of 4 in parts of 1, and of 3 with a rest, one client at a time and all of unequal size in lockstep."""
    simulation = make_simulation(dataset, client_width=width, micro_batch=micro_batch)
    got = jax.jit(lambda: train(simulation, data))()
    chex.assert_trees_all_close(got[0].params, reference[0].params, rtol=1e-4, atol=1e-6)
    chex.assert_trees_all_close(got[1], reference[1], rtol=1e-4, atol=1e-5)


def test_nothing_is_transferred_between_rounds(dataset, data):
    """The state never leaves the device, and nothing of it is made on the host."""
    simulation = make_simulation(dataset)
    arguments = jax.device_put((jax.jit(simulation.init)(KEY, data, H), data, H))
    chunk = jax.jit(lambda state, data, hparams: simulation.run(state, data, hparams, ROUNDS), donate_argnums=0)
    chunk = chunk.lower(*arguments).compile()
    with jax.transfer_guard("disallow"):
        state, _ = jax.block_until_ready(chunk(*arguments))
        state, _ = jax.block_until_ready(chunk(state, *arguments[1:]))
    assert int(state.round) == 2 * ROUNDS
    assert arguments[0].params["Dense_0"]["kernel"].is_deleted()  # donated: the new state took its place


def test_jit_is_eager(dataset, data):
    simulation = make_simulation(dataset)
    state = simulation.init(KEY, data, H)
    eager = simulation.round(state, data, H)
    jitted = jax.jit(simulation.round)(state, data, H)
    chex.assert_trees_all_close(_plain(eager), _plain(jitted), rtol=1e-4, atol=1e-6)


def test_vmap_over_lambda_is_a_loop(dataset, data):
    simulation = make_simulation(dataset)
    lams = jnp.asarray([0.05, 1.0, 100.0])
    one = jax.jit(lambda lam: train(simulation, data, HParams(0.2, lam)))
    together = jax.jit(jax.vmap(lambda lam: train(simulation, data, HParams(0.2, lam))))(lams)
    for i, lam in enumerate(lams):
        alone = one(lam)
        chex.assert_trees_all_close(
            jax.tree.map(lambda a, i=i: a[i], together[0].params), alone[0].params, rtol=1e-4, atol=1e-6
        )


def test_a_round_in_separate_calls_is_the_loop(dataset, data, reference):
    simulation = make_simulation(dataset)
    state = simulation.init(KEY, data, H)
    step = jax.jit(simulation.round)
    for t in range(ROUNDS):
        state, record = step(state, data, H)
        chex.assert_trees_all_close(record, jax.tree.map(lambda a, t=t: a[t], reference[1]), rtol=1e-4, atol=1e-5)
    chex.assert_trees_all_close(state.params, reference[0].params, rtol=1e-4, atol=1e-6)


def test_large_lambda_is_fedavg(dataset, data):
    arfl, _ = jax.jit(lambda: train(make_simulation(dataset), data, HParams(0.2, 1e8)))()
    average, _ = jax.jit(lambda: train(make_simulation(dataset, fedavg), data))()
    chex.assert_trees_all_close(arfl.params, average.params, rtol=1e-4, atol=1e-6)


def test_one_client_is_plain_sgd():
    dataset = make_dataset(counts=(11,))
    data = jax.tree.map(jnp.asarray, dataset.train)
    simulation = make_simulation(dataset, cohort_size=1)
    state = simulation.init(KEY, data, H)
    after, _ = jax.jit(simulation.round)(state, data, H)
    keys = jax.random.split(jax.random.fold_in(state.key, 0), 4)
    update = local_sgd(
        simulation.task, simulation.client_optimizer(H.learning_rate), state.params, data,
        Client(jnp.int32(0), data.offsets[0], data.counts[0]), jax.random.fold_in(keys[1], 0),
        epochs=2, batch_size=4, max_count=11,
    )  # fmt: skip
    chex.assert_trees_all_close(after.params, jax.tree.map(jnp.add, state.params, update), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_a_nan_client_changes_nothing_but_its_own_weight(name, dataset, data):
    """Against the same federation in which that client has no examples at all."""
    bad = int(np.argsort(COUNTS)[-2])
    rule = lambda hparams: AGGREGATORS[name]()
    simulation = make_simulation(dataset, rule, cohort_size=len(COUNTS))
    start = slice(int(data.offsets[bad]), int(data.offsets[bad] + data.counts[bad]))
    poisoned = data._replace(x=data.x.at[start].set(jnp.nan))
    without = data._replace(counts=data.counts.at[bad].set(0))
    run = jax.jit(lambda data: train(simulation, data))
    (with_nan, records), (expected, _) = run(poisoned), run(without)
    chex.assert_tree_all_finite(with_nan.params)
    if name != "arfl":  # its lambda is in units of M, which counts the client's examples
        chex.assert_trees_all_close(with_nan.params, expected.params, rtol=1e-4, atol=1e-5)
    is_bad = records.client_ids == bad
    assert bool(jnp.all(jnp.where(is_bad, records.weights, 0) == 0))
    np.testing.assert_array_equal(records.valid, ~is_bad)
    assert np.isinf(records.losses[is_bad]).all()


def test_a_void_round_leaves_the_model(dataset, data):
    simulation = make_simulation(dataset, fedavg)
    nobody = data._replace(x=jnp.full_like(data.x, jnp.nan))
    state = simulation.init(KEY, nobody, H)
    after, record = jax.jit(simulation.round)(state, nobody, H)
    chex.assert_trees_all_equal(after.params, state.params)
    assert not record.weights.any()
    assert int(after.round) == 1


def test_a_void_round_leaves_the_servers_momentum(dataset, data):
    """With momentum, an update of zero would still move the model."""
    simulation = make_simulation(dataset, fedavg, server_optimizer=optax.sgd(1.0, momentum=0.9))
    moving, _ = jax.jit(simulation.round)(simulation.init(KEY, data, H), data, H)
    nobody = data._replace(x=jnp.full_like(data.x, jnp.nan))
    after, _ = jax.jit(simulation.round)(moving, nobody, H)
    chex.assert_trees_all_equal((after.params, after.optimizer), (moving.params, moving.optimizer))


def bad_loss(report, corrupted):
    return report._replace(losses=jnp.where(corrupted, jnp.nan, report.losses))


def nan_update(report, corrupted):
    spoil = lambda u: jnp.where(corrupted.reshape(-1, *[1] * (u.ndim - 1)), jnp.nan, u)
    return report._replace(updates=jax.tree.map(spoil, report.updates))


def huge_update(report, corrupted):
    """Finite, but its squared norm is not."""
    grow = lambda u: jnp.where(corrupted.reshape(-1, *[1] * (u.ndim - 1)), 1e30, u)
    return report._replace(updates=jax.tree.map(grow, report.updates))


@pytest.mark.parametrize("attack", [bad_loss, nan_update, huge_update])
@pytest.mark.parametrize("name", ["fedavg", "rfa", "multi_krum"])
def test_a_loss_or_an_update_alone_makes_a_client_invalid(name, attack, dataset, data):
    rule = lambda hparams: AGGREGATORS[name]()
    marked = data._replace(corrupted=data.corrupted.at[6].set(True))
    without = data._replace(counts=data.counts.at[6].set(0))
    run = lambda data, **options: jax.jit(
        lambda: train(make_simulation(dataset, rule, cohort_size=len(COUNTS), **options), data)
    )()
    (got, records), (expected, _) = run(marked, attack=attack), run(without)
    chex.assert_trees_all_close(got.params, expected.params, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(records.valid, records.client_ids != 6)


def test_clients_that_drop_out_have_no_say(dataset, data):
    simulation = make_simulation(dataset, dropout_rate=0.5)
    _, records = jax.jit(lambda: train(simulation, data, rounds=40))()
    answered = np.asarray(records.valid)
    assert 0.35 < answered.mean() < 0.65
    assert not np.asarray(records.weights)[~answered].any()
    assert np.isnan(np.asarray(records.losses)[~answered]).all()
    assert np.isfinite(np.asarray(records.losses)[answered]).all()


def test_rules_see_the_same_cohorts_and_initial_model(dataset, data, reference):
    _, records = jax.jit(lambda: train(make_simulation(dataset, fedavg), data))()
    chex.assert_trees_all_equal(records.client_ids, reference[1].client_ids)
    chex.assert_trees_all_close(records.losses[0], reference[1].losses[0], rtol=1e-5)


def test_a_client_trains_alike_whoever_else_is_there(dataset, data):
    """Batches come from the client's id, not from its slot or its wave."""
    simulation = make_simulation(dataset, cohort_size=len(COUNTS))
    without = data._replace(counts=data.counts.at[7].set(0))
    clients = lambda d, ids: Client(ids, d.offsets[ids], d.counts[ids])
    params = simulation.task.init(KEY)
    all_ids, some_ids = jnp.arange(8), jnp.asarray([5, 2])
    everybody = simulation._updates(params, data, clients(data, all_ids), KEY, H)
    some = simulation._updates(params, without, clients(without, some_ids), KEY, H)
    chex.assert_trees_all_close(some, jax.tree.map(lambda u: u[some_ids], everybody), rtol=1e-4, atol=1e-6)


def test_nothing_compiles_twice(dataset, data):
    """A second round, a second grid value and a last, shorter chunk run the same program."""
    simulation = make_simulation(dataset)
    chunk = jax.jit(chex.assert_max_traces(lambda s, d, h, n: simulation.run(s, d, h, 3, n), n=1))
    hparams = HParams(jnp.float32(0.2), jnp.float32(1.0))
    state = simulation.init(KEY, data, hparams)
    chex.clear_trace_counter()
    state, _ = chunk(state, data, hparams, jnp.int32(3))
    state, _ = chunk(state, data, hparams, jnp.int32(3))
    state, last = chunk(state, data, hparams, jnp.int32(1))
    assert int(state.round) == 7
    assert not last.weights[1:].any()
    chunk(state, data, HParams(jnp.float32(0.1), jnp.float32(5.0)), jnp.int32(3))
    assert chunk._cache_size() == 1


def test_short_chunks_are_one_long_one(dataset, data, reference):
    simulation = make_simulation(dataset)
    chunk = jax.jit(lambda s, n: simulation.run(s, data, H, 3, n))
    state = simulation.init(KEY, data, H)
    state, first = chunk(state, jnp.int32(3))
    state, second = chunk(state, jnp.int32(1))
    chex.assert_trees_all_close(state.params, reference[0].params, rtol=1e-4, atol=1e-6)
    weights = jnp.concatenate([first.weights, second.weights[:1]])
    chex.assert_trees_all_close(weights, reference[1].weights, rtol=1e-4, atol=1e-5)


def test_losses_that_nobody_asks_for_are_not_computed(dataset, data):
    """FedAvg without recording: the compiled round has one loop less, and the same result."""

    def compiled(rule, record):
        simulation = make_simulation(dataset, rule, record_losses=record)
        state = simulation.init(KEY, data, H)
        return jax.jit(simulation.round).lower(state, data, H).compile(), state

    with_losses, state = compiled(fedavg, True)
    without, _ = compiled(fedavg, False)
    loops = lambda program: program.as_text().count(" while(")
    assert loops(without) < loops(with_losses)
    (a, _), (b, record) = with_losses(state, data, H), without(state, data, H)
    chex.assert_trees_all_close(a.params, b.params, rtol=1e-5, atol=1e-6)
    assert jnp.isnan(record.losses).all()
    needed, _ = compiled(lambda hparams: fedsim.aggregators.arfl(hparams.lam), False)
    assert loops(needed) == loops(with_losses)  # ARFL needs them, recorded or not


def test_a_max_count_that_is_too_small_is_refused(dataset, data):
    with pytest.raises(ValueError, match="max_count is 5, but a client has 17 examples"):
        make_simulation(dataset, max_count=5).init(KEY, data, H)


def test_a_batch_larger_than_every_client_is_all_its_examples(dataset, data):
    huge, enough = (make_simulation(dataset, batch_size=size) for size in (10**9, 17))
    chex.assert_trees_all_close(
        jax.jit(lambda: train(huge, data, rounds=1))()[0].params,
        jax.jit(lambda: train(enough, data, rounds=1))()[0].params,
        rtol=1e-5,
    )


@pytest.mark.parametrize("batch_size", [3, 7, 40, 1000])
def test_evaluation_counts_every_example_once(batch_size, dataset, data):
    task = make_simulation(dataset).task
    params = task.init(KEY)
    metrics = fedsim.evaluate(task, params, dataset.x_test, dataset.y_test, batch_size)
    logits = dataset.x_test @ np.asarray(params["Dense_0"]["kernel"])
    assert int(metrics.num_examples) == 40
    assert int(metrics.num_correct) == (logits.argmax(1) == dataset.y_test).sum()


def test_server_momentum(dataset, data):
    """Two rounds with momentum by hand: v <- 0.5 v + update."""
    plain = make_simulation(dataset, fedavg)
    heavy = make_simulation(dataset, fedavg, server_optimizer=optax.sgd(1.0, momentum=0.5))
    state = heavy.init(KEY, data, H)
    first, _ = heavy.round(state, data, H)
    second, _ = heavy.round(first, data, H)
    expected, _ = plain.round(first._replace(optimizer=plain.server_optimizer.init(first.params)), data, H)
    velocity = jax.tree.map(lambda a, b: 0.5 * (a - b), first.params, state.params)
    chex.assert_trees_all_close(second.params, jax.tree.map(jnp.add, expected.params, velocity), rtol=1e-4, atol=1e-6)


def _plain(tree):
    """Keys as plain integers, so that chex compares them."""
    is_key = lambda a: jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
    return jax.tree.map(lambda a: jax.random.key_data(a) if is_key(a) else a, tree)
