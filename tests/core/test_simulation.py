"""The round and the loop over rounds: identities that hold whatever the model."""

from dataclasses import replace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedsim
from fedsim import Aggregator, Attack, HParams
from fedsim.aggregators import from_weights
from fedsim.config.registry import find
from fedsim.core.simulation import Simulation
from fedsim.core.trees import expand_like
from tests.conftest import COUNTS, make_dataset, make_simulation

KEY = jax.random.key(7)
H = HParams(learning_rate=0.2, settings={"arfl.lam": 1.0})
ROUNDS = 4


def begin(simulation: Simulation, data):
    return jax.jit(simulation.init)(KEY, data, H)


def train(simulation: Simulation, data, hparams=H, key=KEY, rounds=ROUNDS):
    return simulation.run_rounds(simulation.init(key, data, hparams), data, hparams, rounds)


def rule_named(name):
    return lambda hparams: find("server.aggregator", name).make()


def fedavg(hparams) -> Aggregator:
    return fedsim.aggregators.fedavg()


@pytest.fixture(scope="module")
def train_arfl(dataset, data):
    """ARFL with a given lambda."""
    simulation = make_simulation(dataset)
    return jax.jit(lambda lam: train(simulation, data, H._replace(settings={"arfl.lam": lam})))


@pytest.fixture(scope="module")
def reference(train_arfl):
    return train_arfl(1.0)


def test_nothing_is_transferred_between_rounds(dataset, data):
    """The state never leaves the device, and no part of it is created on the host."""
    simulation = make_simulation(dataset)
    arguments = jax.device_put((jax.jit(simulation.init)(KEY, data, H), data, H))
    chunk = jax.jit(lambda state, data, hparams: simulation.run_rounds(state, data, hparams, ROUNDS), donate_argnums=0)
    chunk = chunk.lower(*arguments).compile()
    with jax.transfer_guard("disallow"):
        state, _ = jax.block_until_ready(chunk(*arguments))
        state, _ = jax.block_until_ready(chunk(state, *arguments[1:]))
    assert int(state.round) == 2 * ROUNDS
    assert arguments[0].variables.params["Dense_0"]["kernel"].is_deleted()  # donated: the new state took its place


def test_vmap_over_lambda_equals_a_loop(train_arfl):
    lams = np.asarray([0.05, 1.0, 100.0])
    together = jax.jit(jax.vmap(lambda lam: train_arfl(lam)[0].variables))(lams)
    alone = [train_arfl(lam)[0].variables for lam in lams.tolist()]
    chex.assert_trees_all_close(together, jax.tree.map(lambda *a: jnp.stack(a), *alone), rtol=1e-4, atol=1e-6)


# A rule that uses updates alone, one that uses losses, one with root data; the contract holds all to invalid clients.
@pytest.mark.parametrize("name", ["multi_krum", "arfl", "zeno"])
def test_a_nan_client_changes_only_its_own_weight(name, dataset, data):
    """Against the same federation in which that client has no examples at all."""
    bad = int(np.argsort(COUNTS)[-2])
    simulation = make_simulation(dataset, rule_named(name), cohort_size=len(COUNTS))
    start = slice(int(data.offsets[bad]), int(data.offsets[bad] + data.num_examples[bad]))
    poisoned = data._replace(x=data.x.at[start].set(jnp.nan))
    without = data._replace(num_examples=data.num_examples.at[bad].set(0))
    run = jax.jit(lambda data: train(simulation, data))
    (with_nan, records), (expected, _) = run(poisoned), run(without)
    chex.assert_tree_all_finite(with_nan.variables)
    if name != "arfl":  # its lambda is in units of M, which counts the client's examples
        chex.assert_trees_all_close(with_nan.variables, expected.variables, rtol=1e-4, atol=1e-5)
    is_bad = records.client_ids == bad
    assert bool(jnp.all(jnp.where(is_bad, records.weights, 0) == 0))
    np.testing.assert_array_equal(records.valid, ~is_bad)
    assert np.isinf(records.losses[is_bad]).all()


def test_a_skipped_round_keeps_the_model_and_the_server_momentum(dataset, data):
    """With momentum, an update of zero would still move the model."""
    momentum = lambda hparams: optax.sgd(1.0, momentum=0.9)
    simulation = make_simulation(dataset, fedavg, server_optimizer=momentum)
    step = jax.jit(simulation.round)
    moving, _ = step(begin(simulation, data), data, H)
    after, record = step(moving, data._replace(x=jnp.full_like(data.x, jnp.nan)), H)
    chex.assert_trees_all_equal((after.variables, after.optimizer), (moving.variables, moving.optimizer))
    assert not record.weights.any()
    assert int(after.round) == 2


def forging_attack(hparams) -> Attack:
    """Adds the traced settings to losses and updates."""

    def forge_updates(state, round_, key):
        return jax.tree.map(lambda u: u + hparams.settings["update"], round_.report.updates), state

    forge_report = lambda state, report, malicious, key: (report.num_examples, report.losses + hparams.settings["loss"])
    return Attack(forge_report=forge_report, forge_updates=forge_updates)


def test_a_loss_or_an_update_alone_makes_a_client_invalid(dataset, data):
    """Also a finite update whose square is not. Against the federation without the client.

    The attack forges the values of all clients, but those of honest ones are ignored.
    """
    marked = data._replace(corrupted=data.corrupted.at[6].set(True))
    without = data._replace(num_examples=data.num_examples.at[6].set(0))
    simulation = make_simulation(dataset, rule_named("multi_krum"), cohort_size=len(COUNTS), attack=forging_attack)
    forged = lambda loss, update: H._replace(settings={"loss": jnp.float32(loss), "update": jnp.float32(update)})
    run = jax.jit(lambda data, hparams: train(simulation, data, hparams, rounds=2))
    expected, _ = run(without, forged(0, 0))
    for hparams in (forged(jnp.nan, 0), forged(0, jnp.nan), forged(0, 1e30)):
        actual, records = run(marked, hparams)
        chex.assert_trees_all_close(actual.variables, expected.variables, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(records.valid, records.client_ids != 6)


def test_an_attack_sees_the_aggregation_of_its_round(dataset, data):
    """Of the true report it is the update of the model, and of one with NaN what the server would make of that."""

    def watch(state, context, key):
        lost = lambda u: jnp.where(expand_like(context.malicious, u), jnp.nan, u)
        report = context.report._replace(updates=jax.tree.map(lost, context.report.updates))
        return context.report.updates, [context.aggregate(sent).update for sent in (context.report, report)]

    init = lambda variables, num_examples: [jax.tree.map(jnp.zeros_like, variables)] * 2
    simulation = make_simulation(dataset, rule_named("cfl"), attack=lambda hparams: Attack(init, forge_updates=watch))
    data = data._replace(corrupted=data.corrupted.at[:4].set(True))  # some of each cohort of five, but not all
    before = begin(simulation, data)
    after, _ = jax.jit(simulation.round)(before, data, H)
    moved = jax.tree.map(jnp.subtract, after.variables, before.variables)
    assert float(jnp.abs(moved.params["Dense_0"]["kernel"]).max()) > 0.01
    chex.assert_trees_all_close(after.attack[0], moved, rtol=1e-4, atol=1e-6)
    chex.assert_tree_all_finite(after.attack[1])


@pytest.mark.parametrize("factor", [1000, -1000])
def test_the_server_weighs_by_forged_numbers_of_examples(factor, dataset, data):
    attack = Attack(forge_report=lambda state, report, malicious, key: (factor * report.num_examples, report.losses))
    marked = data._replace(corrupted=data.corrupted.at[0].set(True))  # client 0 has one example of 59
    simulation = make_simulation(dataset, fedavg, cohort_size=len(COUNTS), attack=lambda hparams: attack)
    _, record = jax.jit(lambda: train(simulation, marked, rounds=1))()
    weight = float(record.weights[record.client_ids == 0][0])
    reported = max(factor, 0)  # no number is negative
    assert weight == pytest.approx(reported / (reported + sum(COUNTS[1:])))


def test_rules_see_the_same_cohorts_and_initial_model(dataset, data, reference):
    _, records = jax.jit(lambda: train(make_simulation(dataset, fedavg), data))()
    chex.assert_trees_all_equal(records.client_ids, reference[1].client_ids)
    chex.assert_trees_all_close(records.losses[0], reference[1].losses[0], rtol=1e-5)


def test_local_training_does_not_depend_on_the_rest_of_the_cohort(dataset, data):
    """Batches depend on the client's id, not on its position or wave, and data of other clients are not read."""
    others = data._replace(num_examples=data.num_examples.at[jnp.asarray([7, 2])].set(0), x=data.x.at[:13].set(9.0))
    only_5 = from_weights(lambda report: jnp.where(report.client_ids == 5, 1.0, 0.0))

    def model_of_5(data, width):
        simulation = make_simulation(dataset, lambda hparams: only_5, cohort_size=len(COUNTS), client_width=width)
        return jax.jit(lambda: train(simulation, data, rounds=1))()[0].variables

    chex.assert_trees_all_close(model_of_5(others, 3), model_of_5(data, 0), rtol=1e-4, atol=1e-6)


def test_short_chunks_equal_one_long_chunk_and_nothing_compiles_twice(dataset, data, reference):
    """A second chunk, a shorter one and a second grid value run the same program."""
    simulation = make_simulation(dataset)
    chunk = jax.jit(lambda s, d, h, n: simulation.run_rounds(s, d, h, 3, n))
    hparams = HParams(jnp.float32(0.2), settings={"arfl.lam": jnp.float32(1.0)})
    state, first = chunk(begin(simulation, data), data, hparams, jnp.int32(3))
    state, second = chunk(state, data, hparams, jnp.int32(1))
    chex.assert_trees_all_close(state.variables, reference[0].variables, rtol=1e-4, atol=1e-6)
    weights = jnp.concatenate([first.weights, second.weights[:1]])
    chex.assert_trees_all_close(weights, reference[1].weights, rtol=1e-4, atol=1e-5)
    assert not second.weights[1:].any()
    state, _ = chunk(state, data, HParams(jnp.float32(0.1), settings={"arfl.lam": jnp.float32(5.0)}), jnp.int32(3))
    assert int(state.round) == 7
    assert chunk._cache_size() == 1


def test_a_max_num_examples_that_is_too_small_is_refused(dataset, data):
    with pytest.raises(ValueError, match=r"^training\.max_num_examples: .*at least 17.*got 5$"):
        make_simulation(dataset, max_num_examples=5).init(KEY, data, H)


def test_a_batch_larger_than_every_client_holds_all_its_examples(dataset, data):
    state = begin(make_simulation(dataset), data)
    huge, enough = (jax.jit(make_simulation(dataset, batch_size=size).round)(state, data, H) for size in (10**9, 17))
    chex.assert_trees_all_close(huge[0].variables, enough[0].variables, rtol=1e-5)


# Broken contracts are reported where they are traced


def wrong_rule(**change) -> Aggregator:
    """FedAvg with a scalar state, whose result `change` modifies."""
    right = fedsim.aggregators.fedavg()

    def aggregate(state, report, key):
        result, _ = right.aggregate((), report, key)
        next_state = change.get("state", lambda a: a)(state)
        fields = {name: f(getattr(result, name)) for name, f in change.items() if name != "state"}
        return result._replace(**fields), next_state

    return Aggregator(lambda variables, num_examples, losses: jnp.zeros(3), aggregate)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"update": lambda u: jax.tree.map(lambda a: a[None], u)},
            r"update.* must be float32\[3\], got float32\[1, 3\]",
        ),
        ({"update": lambda u: jax.tree.map(lambda a: a.astype(jnp.float16), u)}, "float16"),
        ({"update": lambda u: u.params}, "a rule's update must be a PyTreeDef"),
        ({"weights": lambda w: w[1:]}, r"weights must be float32\[5\], got float32\[4\]"),
        ({"weights": lambda w: w > 0}, r"weights must be float32\[5\], got bool\[5\]"),  # of no use in a family
        ({"state": lambda s: s[:2]}, r"state must be float32\[3\], got float32\[2\]"),
        ({"state": lambda s: s.astype(jnp.float16)}, "float16"),
        ({"info": lambda i: {"clients": jnp.zeros(5)}}, r"clients must have shape \[\], got float32\[5\]"),
    ],
)
def test_a_rule_with_wrong_shapes_is_refused(change, message, dataset, data):
    simulation = make_simulation(dataset, lambda hparams: wrong_rule(**change))
    state = jax.eval_shape(simulation.init, KEY, data, H)
    with pytest.raises(AssertionError, match=message):
        jax.eval_shape(simulation.round, state, data, H)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (lambda hparams, round: fedsim.aggregators.median(), "the result must be a fedsim.Method, got Aggregator"),
        (
            lambda hparams, round: fedsim.Method(fedsim.aggregators.median(), optax.adam(0.1)),
            r"client_optimizer must be a fedsim.ClientOptimizer, got \w+; use fedsim.ClientOptimizer\(",
        ),
        (
            lambda hparams, round: fedsim.Method(
                fedsim.aggregators.median(), fedsim.client_sgd(hparams), attack=fedsim.attacks.ipm
            ),
            "attack must be a fedsim.Attack, got function",
        ),
    ],
)
def test_a_method_with_a_wrong_part_is_refused(method, message, dataset, data):
    simulation = replace(make_simulation(dataset, fedavg), method=method)
    with pytest.raises(AssertionError, match=f"^method: {message}"):
        jax.eval_shape(simulation.init, KEY, data, H)


def test_attacks_and_algorithms_with_wrong_shapes_are_refused(dataset, data):
    half = lambda tree: jax.tree.map(lambda a: a.astype(jnp.float16), tree)
    plain = fedsim.plain_sgd()

    def train_half(local, client_state, server_state):
        return plain.train(local, client_state, server_state)._replace(variables=half(local.start))

    wrong = r"must (be|have shape) .*, got "
    for name, part, message in (
        ("attack", Attack(forge_updates=lambda state, round_, key: (half(round_.report.updates), state)), wrong),
        ("attack", Attack(forge_updates=lambda state, round_, key: (round_.report.updates, jnp.zeros(1))), wrong),
        ("attack", Attack(forge_report=lambda state, report, *_: (report.num_examples[1:], report.losses)), wrong),
        ("algorithm", plain._replace(train=train_half), wrong),
        ("algorithm", plain._replace(init=lambda params: (jax.random.key(0), ())), "must hold no random keys"),
    ):
        simulation = make_simulation(dataset, fedavg, **{name: lambda hparams, part=part: part})
        with pytest.raises(AssertionError, match=message):
            jax.eval_shape(lambda simulation=simulation: train(simulation, data, rounds=1))


def test_client_states_belong_to_their_clients():
    """Each client counts its rounds in its state; clients that drop out or are not in the cohort keep it."""
    dataset = make_dataset(num_examples=(2, 3, 4, 5))
    data = jax.tree.map(jnp.asarray, dataset.train)

    def count(local, client_state, server_state):
        return fedsim.LocalResult(local.start, client_state + 1, jnp.float32(1))

    update_server_state = lambda server_state, messages, valid, num_clients: server_state + jnp.sum(messages)
    algorithm = fedsim.Algorithm(lambda params: (jnp.int32(0), jnp.float32(0)), count, update_server_state)
    simulation = make_simulation(
        dataset, fedavg, cohort_size=2, dropout_rate=0.4, algorithm=lambda hparams: algorithm, max_num_examples=5
    )
    state, records = jax.jit(lambda: train(simulation, data, rounds=20))()
    answered = np.asarray(records.client_ids)[np.asarray(records.valid)]
    np.testing.assert_array_equal(state.client_states, np.bincount(answered, minlength=4))
    assert 18 < len(answered) < 30  # of 40, each with probability 0.6
    assert float(state.server_state) == len(answered)
    has_dropped_out = ~np.asarray(records.valid)
    assert not np.asarray(records.weights)[has_dropped_out].any()
    assert np.isnan(np.asarray(records.losses)[has_dropped_out]).all()
