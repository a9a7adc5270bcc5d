"""Label noise: how many labels change, and to which classes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedsim
from fedsim import DataSpec
from fedsim.corruption import localized, pairflip, symmetric, targeted

KEY = jax.random.key(5)
CLASSES, CLIENTS, SIZE = 5, 20, 1000
SPEC = DataSpec("vector", "classes", CLASSES, (1,), "float32")


def add_noise(corruption, num_corrupted=CLIENTS, spec=SPEC):
    """Labels before and after, [CLIENTS, SIZE], and the corrupted clients, [CLIENTS] bool."""
    y = np.random.default_rng(0).integers(0, spec.num_classes, CLIENTS * SIZE)
    offsets, num_examples = np.arange(CLIENTS) * SIZE, np.full(CLIENTS, SIZE)
    data = fedsim.ClientData(
        *(jnp.asarray(a) for a in (np.zeros((len(y), 1)), y, offsets, num_examples, num_examples < 0))
    )
    after = fedsim.corrupt(corruption, KEY, data, spec, num_corrupted)
    return y.reshape(CLIENTS, SIZE), np.asarray(after.y).reshape(CLIENTS, SIZE), np.asarray(after.corrupted)


def transitions(before, after):
    """Observed P(c -> d), [C, C]."""
    table = np.zeros((CLASSES, CLASSES))
    np.add.at(table, (before.ravel(), after.ravel()), 1)
    return table / table.sum(axis=1, keepdims=True)


EXPECTED = {
    "other": (symmetric(rate=0.4), 0.6 * np.eye(CLASSES) + 0.1 * (1 - np.eye(CLASSES))),
    "any": (symmetric(rate=0.4, new_label="any"), 0.6 * np.eye(CLASSES) + 0.08),
    "all": (symmetric(rate=1.0), (1 - np.eye(CLASSES)) / (CLASSES - 1)),
    "none": (symmetric(rate=0.0), np.eye(CLASSES)),
    "pairflip": (pairflip(rate=0.45), 0.55 * np.eye(CLASSES) + 0.45 * np.roll(np.eye(CLASSES), 1, axis=1)),
    "targeted": (targeted(source=3, target=1), np.eye(CLASSES)[[0, 1, 2, 1, 4]]),
    "targeted at a rate": (
        targeted(source=4, target=0, rate=0.3),
        np.eye(CLASSES) + np.outer([0, 0, 0, 0, 0.3], [1, 0, 0, 0, -1]),
    ),
    "localized": (localized(tau=1.0), np.full((CLASSES, CLASSES), 1 / CLASSES)),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_transition_probabilities(name):
    """Of 20,000 labels, 4,000 per class: within five standard deviations; probabilities of 0 and 1 are exact."""
    corruption, expected = EXPECTED[name]
    observed = transitions(*add_noise(corruption)[:2])
    assert (abs(observed - expected) <= 5 * np.sqrt(expected * (1 - expected) / 3900)).all()


def test_benign_clients_keep_their_labels():
    for corruption in (symmetric(), pairflip(), targeted(), localized()):
        before, after, corrupted = add_noise(corruption, num_corrupted=7)
        np.testing.assert_array_equal((before != after).any(axis=1), corrupted)


def test_localized_noise_draws_a_rate_per_client():
    """From U(0.5, 1), over 20 clients; a resampled label is wrong with probability 1 - 1 / C."""
    before, after, _ = add_noise(localized(tau=0.5))
    rates = (before != after).mean(axis=1) / (1 - 1 / CLASSES)
    assert 0.42 < rates.min() < 0.65
    assert 0.85 < rates.max() < 1.08
    assert rates.mean() == pytest.approx(0.75, abs=5 * 0.5 / np.sqrt(12 * CLIENTS))
    more, fewer = add_noise(localized(tau=0.5), num_corrupted=12), add_noise(localized(tau=0.5), num_corrupted=5)
    np.testing.assert_array_equal(more[1][fewer[2]], fewer[1][fewer[2]])  # independent of the fraction


def test_symmetric_noise_with_two_classes_and_one():
    for classes in (1, 2):
        spec = DataSpec("vector", "classes", classes, (1,), "float32")
        before, after, _ = add_noise(symmetric(rate=1.0), spec=spec)
        np.testing.assert_array_equal(after, (before + 1) % classes)


def test_targeted_refuses_a_class_that_does_not_exist():
    targeted(source=0, target=4).validate(SPEC)
    with pytest.raises(ValueError, match="classes from 0 to 4, got 0, 5"):
        targeted(source=0, target=5).validate(SPEC)
