"""False losses, flipped signs, and attacks without honest clients; tests/testing checks the contract of all attacks."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim.attacks import fake_loss, none, sign_flip
from fedsim.core.contracts import AttackContext
from fedsim.core.types import CohortReport
from tests.attacks.contexts import KEY, first_update, make_context, rows
from tests.conftest import COUNTS, make_simulation


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


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in ("ipm", "alie", "min_max", "min_sum", "fang", "mimic")),
        ("fang", {"against": "krum"}),
        ("mimic", {"target": "fixed"}),
        *((name, {"num_strengths": 2}) for name in ("optimal_ipm", "optimal_alie")),
        ("ascent", {"num_steps": 1}),
    ],
)
def test_without_honest_clients_zeros_are_sent_and_nothing_is_learned(name, settings):
    context = make_context(malicious=np.ones(8, bool), rule=fedsim.aggregators.fedavg())
    variables = first_update(context)
    attack = getattr(fedsim.attacks, name)(**settings)
    state = jax.tree.map(lambda a: a + 1, attack.init(variables, context.report.num_examples))
    forge = jax.jit(lambda state: attack.forge_updates(state, context._replace(variables=variables), KEY))
    forged, next_state = forge(state)
    assert not rows(forged).any()
    chex.assert_trees_all_equal(next_state, state)


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
