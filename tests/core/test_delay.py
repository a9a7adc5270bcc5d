"""Corruption and attacks that begin in a later round."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim import Attack
from fedsim.core.delay import DelayedCorruption, current_data
from tests.conftest import make_simulation
from tests.core.test_simulation import KEY, H

ROUNDS, START = 4, 3
WHO = np.asarray([0, 1, 0, 0, 1, 1, 0, 1], bool)


def counting(hparams) -> Attack:
    """Malicious clients send ten times their update and their loss; the state counts the rounds."""
    return Attack(
        init=lambda variables, num_examples: jnp.int32(0),
        forge_report=lambda state, report, malicious, key: (report.num_examples, 10 * report.losses),
        forge_updates=lambda state, round_, key: (jax.tree.map(lambda u: 10 * u, round_.report.updates), state + 1),
    )


def corrupted(data):
    """Other inputs, other labels, and one client without any examples."""
    changes = {
        "x": -data.x,
        "y": (data.y + 1) % 3,
        "num_examples": data.num_examples.at[4].set(0),
        "corrupted": jnp.asarray(WHO),
    }
    return changes, data._replace(**changes)


@pytest.fixture(scope="module")
def simulation(dataset):
    """ARFL, which uses the losses before the first round."""
    return make_simulation(dataset, attack=counting)


@pytest.fixture(scope="module")
def whole(simulation):
    """All rounds, from clean or delayed data."""
    return jax.jit(lambda data: simulation.run_rounds(simulation.init(KEY, data, H), data, H, ROUNDS))


@pytest.fixture(scope="module")
def parts(simulation):
    """The start and a round."""
    return jax.jit(simulation.init), jax.jit(simulation.round)


@pytest.mark.parametrize(("start", "end"), [(START, ROUNDS), (START, ROUNDS - 1), (1, 2)])
def test_a_run_is_corrupted_from_the_start_to_the_end(start, end, whole, parts, data):
    """Round by round, what a loop does that hands over the one data set and then the other."""
    changes, late = corrupted(data)
    begin, run_round = parts
    state, records = begin(KEY, data, H), []
    for number in range(1, ROUNDS + 1):
        if number == start:  # attacks have not counted the rounds before
            state = state._replace(attack=jnp.int32(0))
        attack_state = state.attack
        state, record = run_round(state, late if start <= number <= end else data, H)
        state = state._replace(attack=attack_state) if number > end else state
        records.append(record)
    actual, actual_records = whole(DelayedCorruption(data, changes, jnp.int32(start), jnp.int32(end)))
    assert int(actual.attack) == end - start + 1
    chex.assert_trees_all_close(actual._replace(key=0), state._replace(key=0), rtol=1e-5, atol=1e-6)
    expected = jax.tree.map(lambda *rows: jnp.stack(rows), *records)
    chex.assert_trees_all_close(actual_records, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("start", [0, ROUNDS + 1])
def test_a_start_of_0_is_always_corrupted_and_a_late_start_always_clean(start, whole, data):
    """0: the losses before the first round are corrupted, too. Beyond the last round: clean, whatever attacks."""
    changes, late = corrupted(data)
    actual = whole(DelayedCorruption(data, changes, jnp.int32(start), jnp.int32(ROUNDS)))
    expected = whole(data if start else late)
    if start:
        assert int(actual[0].attack) == 0
        expected = expected[0]._replace(attack=jnp.int32(0)), expected[1]
    unkeyed = lambda run: (run[0]._replace(key=0), run[1])
    chex.assert_trees_all_close(unkeyed(actual), unkeyed(expected), rtol=1e-5, atol=1e-6)


def test_only_rows_that_are_read_are_switched(data):
    """Other fields are the clean arrays themselves."""
    changes, _ = corrupted(data)
    now = current_data(DelayedCorruption(data, {"y": changes["y"]}, jnp.int32(2)), jnp.int32(2))
    assert now.x is data.x
    assert now.num_examples is data.num_examples
    take = lambda late: current_data(late, jnp.int32(START)).x[jnp.arange(3)]
    text = jax.jit(take).lower(DelayedCorruption(data, changes, jnp.int32(2))).as_text()
    selects = [line for line in text.splitlines() if "stablehlo.select" in line]
    assert any("3x5xf32" in line for line in selects)
    assert not any(f"{len(data.x)}x5xf32" in line for line in selects)


def test_losses_before_the_first_round_are_of_clean_data_if_corruption_begins_in_it(dataset, data):
    """Also those that are measured in portions, of data on the host."""
    losses = jax.jit(lambda data: make_simulation(dataset).initial_losses(KEY, data, jnp.arange(4))[1])
    changes, _ = corrupted(data)
    np.testing.assert_allclose(losses(DelayedCorruption(data, changes, jnp.int32(1))), losses(data), rtol=1e-6)
