"""False losses and flipped signs; tests/testing checks the contract of all attacks."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim.attacks import fake_loss, none, sign_flip
from fedsim.core.contracts import AttackContext
from fedsim.core.types import CohortReport
from tests.conftest import COUNTS, make_simulation

KEY = jax.random.key(5)


def test_fake_loss_and_sign_flip():
    updates = {"w": jnp.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])}
    report = CohortReport(jnp.arange(3), jnp.ones(3, int), jnp.asarray([1.0, 2.0, 3.0]), updates, jnp.ones(3, bool))
    malicious = jnp.asarray([False, True, False])
    num_examples, losses = fake_loss(scale=0.01).forge_report((), report, malicious, KEY)
    assert losses[1] == pytest.approx(0.02)
    chex.assert_trees_all_equal(num_examples, report.num_examples)
    forged, _ = sign_flip(scale=3.0).forge_updates((), AttackContext(report, malicious, None, None), KEY)
    np.testing.assert_allclose(forged["w"][1], [-9, -12])
    assert (fake_loss().forge_updates, sign_flip().forge_report, none()) == (None, None, fedsim.Attack())


def test_a_false_loss_increases_the_weight_under_arfl(dataset, data):
    """The paper's limitation: a false small loss, reported from the start, draws the weight."""
    corrupted = fedsim.corrupt(fedsim.corruption.shuffling(), KEY, data, dataset.spec, 2)
    attack = lambda hparams: fake_loss(scale=hparams.settings["scale"])  # 1: the truth
    simulation = make_simulation(dataset, attack=attack, cohort_size=len(COUNTS))

    @jax.jit
    def malicious_weight(scale):
        hparams = fedsim.HParams(0.2, settings={"arfl.lam": 0.3, "scale": scale})
        state = simulation.init(KEY, corrupted, hparams)
        _, records = simulation.run_rounds(state, corrupted, hparams, 5)
        return jnp.sum(jnp.where(corrupted.corrupted[records.client_ids], records.weights, 0))

    assert malicious_weight(1.0) < 4 < 4.9 < malicious_weight(1e-6)  # of five rounds
