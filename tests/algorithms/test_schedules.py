"""Learning rates over rounds against recursive formulas, and the rates that a round uses."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedsim import HParams
from fedsim.algorithms import schedules, server_optimizers
from fedsim.config.toml import parse
from fedsim.engine import build
from tests.algorithms.reference import RATE, WHOLE, Reference, cohort_weights, make_clients, simulate, to_vector

R = 12


def iterate(change, rate=0.4):
    """The rates of R rounds; `change(rate, t)` is the one after round t."""
    rates = []
    for t in range(R):
        rates.append(rate)
        rate = change(rate, t)
    return rates


def anneal(rate, t, final=0.1 * 0.4):
    """The recursive form that PyTorch documents for CosineAnnealingLR."""
    ratio = (1 + np.cos(np.pi * (t + 1) / R)) / (1 + np.cos(np.pi * t / R))
    return final + (rate - final) * ratio


CASES = {
    "constant": (schedules.constant(), iterate(lambda rate, t: rate)),
    "step": (schedules.step(every=5, factor=0.3), iterate(lambda rate, t: rate * (0.3 if t % 5 == 4 else 1))),
    "exponential": (schedules.exponential(decay=0.7), iterate(lambda rate, t: rate * 0.7)),
    "cosine": (schedules.cosine(R, final_fraction=0.1), iterate(anneal)),
}


@pytest.mark.parametrize("name", CASES)
def test_rates_of_all_rounds(name):
    schedule, rates = CASES[name]
    actual = [float(schedule(jnp.float32(0.4), jnp.int32(t))) for t in range(R)]
    np.testing.assert_allclose(actual, rates, rtol=1e-5)


def test_cosine_ends_at_its_final_fraction():
    assert float(schedules.cosine(R, final_fraction=0.25)(2.0, R)) == pytest.approx(0.5)
    assert float(schedules.cosine(0)(2.0, jnp.int32(0))) == 2.0


def test_clients_and_server_use_the_rates_of_the_round():
    """The server steps along the mean update, minus a part of the model, with momentum."""
    dataset = make_clients(WHOLE)
    decrease = lambda hparams, t: hparams._replace(
        learning_rate=hparams.learning_rate * 0.5**t, server_learning_rate=hparams.server_learning_rate / (1 + t)
    )
    p, state, records = simulate(
        dataset,
        WHOLE,
        HParams(RATE, 0.8),
        schedule=decrease,
        server_optimizer=lambda hparams: server_optimizers.sgd(
            hparams.server_learning_rate, momentum=0.6, weight_decay=0.3
        ),
    )
    reference, velocity = Reference(dataset, WHOLE), 0.0
    for t, (clients, weights) in enumerate(cohort_weights(records)):
        updates = np.asarray([reference.train(i, p, rate=RATE * 0.5**t) - p for i in clients])
        velocity = 0.6 * velocity + weights @ updates - 0.3 * p
        p = p + 0.8 / (1 + t) * velocity
    np.testing.assert_allclose(to_vector(state.variables.params), p, rtol=2e-4, atol=2e-5)


def test_a_schedule_gets_the_number_of_rounds_only_if_it_requires_an_argument(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(
        "def halve(decay=0.5):\n    return lambda rate, t: rate * decay**t\n"
        "def fall(rounds):\n    return lambda rate, t: rate * (1 - t / rounds)\n"
    )
    monkeypatch.chdir(tmp_path)
    for name, expected in (("halve", 0.5**3), ("fall", 0.25)):
        (run,) = parse(f"client.schedule = 'own.py:{name}'\nserver.num_rounds = 4\nclient.learning_rate = 1.0").runs()
        rates = build.schedule(run, build.hparams(run), jnp.int32(3))
        assert float(rates.learning_rate) == pytest.approx(expected)


def test_a_configuration_sets_both_schedules():
    text = """
    client = {learning_rate = 0.4, schedule = "cosine"}
    server = {learning_rate = 2.0, schedule = "exponential", num_rounds = 12}
    exponential.decay = 0.5
    """
    (run,) = parse(text).runs()
    rates = build.schedule(run, build.hparams(run), jnp.int32(6))
    assert float(rates.learning_rate) == pytest.approx(0.2)  # half of half a cosine
    assert float(rates.server_learning_rate) == pytest.approx(2 * 0.5**6)
    assert rates._replace(learning_rate=0.4, server_learning_rate=2.0) == build.hparams(run)
