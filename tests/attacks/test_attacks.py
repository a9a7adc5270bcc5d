"""What the built-in attacks report; their contract is in tests/testing."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim.attacks import fake_loss, none, sign_flip
from fedsim.core.types import CohortReport, Round
from tests.conftest import COUNTS, make_simulation

KEY = jax.random.key(5)


def test_what_they_say_and_send():
    updates = {"w": jnp.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])}
    report = CohortReport(jnp.arange(3), jnp.ones(3, int), jnp.asarray([1.0, 2.0, 3.0]), updates, jnp.ones(3, bool))
    corrupted = jnp.asarray([False, True, False])
    counts, losses = fake_loss(scale=0.01).say((), report, corrupted, KEY)
    assert losses[1] == pytest.approx(0.02)
    chex.assert_trees_all_equal(counts, report.counts)
    sent, _ = sign_flip(scale=3.0).send((), Round(report, corrupted, None, None), KEY)
    np.testing.assert_allclose(sent["w"][1], [-9, -12])
    assert (fake_loss().send, sign_flip().say, none()) == (None, None, fedsim.Attack())


def test_a_false_loss_buys_weight_under_arfl(dataset, data):
    """The paper's limitation: a false small loss, reported from the start, draws the weight."""
    corrupted = fedsim.corrupt(fedsim.corruption.shuffling(), KEY, data, dataset.spec, 2)
    liar = lambda hparams: fake_loss(scale=hparams.settings["scale"])  # 1: the truth
    simulation = make_simulation(dataset, attack=liar, cohort_size=len(COUNTS))

    @jax.jit
    def weight_of_liars(scale):
        hparams = fedsim.HParams(0.2, settings={"arfl.lam": 0.3, "scale": scale})
        state = simulation.init(KEY, corrupted, hparams)
        _, records = simulation.run_rounds(state, corrupted, hparams, 5)
        return jnp.sum(jnp.where(corrupted.corrupted[records.client_ids], records.weights, 0))

    assert weight_of_liars(1.0) < 4 < 4.9 < weight_of_liars(1e-6)  # of five rounds
