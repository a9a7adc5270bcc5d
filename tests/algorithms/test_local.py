"""FedProx and SCAFFOLD against float64 loops over clients and rounds."""

import numpy as np
import pytest

from fedsim import HParams
from fedsim.algorithms import fedprox, scaffold
from fedsim.core.client import plain_sgd
from tests.algorithms.loops import COUNTS, RAGGED, RATE, WHOLE, Loop, cohorts, federation, simulate, vector

TOLERANCE = {"rtol": 2e-4, "atol": 2e-5}


@pytest.fixture(scope="module", params=[WHOLE, RAGGED])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def dataset(kind):
    return federation(kind)


@pytest.mark.parametrize("options", [{}, {"cohort_size": 3, "failure_rate": 0.2}], ids=["full", "partial"])
def test_scaffold_is_its_algorithm_1(options, dataset, kind):
    """Option II, with the model, every client's control and the server's."""
    algorithm = {"algorithm": lambda hparams: scaffold()}
    p, state, records = simulate(dataset, kind, HParams(RATE), **algorithm, **options)
    loop, n = Loop(dataset, kind), len(COUNTS)
    controls, control = np.zeros((n, len(p))), np.zeros(len(p))
    for clients, weights in cohorts(records):
        new_p, changes = p, []
        for i, weight in zip(clients, weights, strict=True):
            y = loop.train(i, p, lambda g, _, i=i, c=control: g - controls[i] + c)
            change = -control + (p - y) / (loop.steps[i] * RATE)
            changes.append((i, change))
            new_p = new_p + weight * (y - p)
        for i, change in changes:
            controls[i] += change
            control = control + change / n
        p = new_p
    np.testing.assert_allclose(vector(state.variables.params), p, **TOLERANCE)
    np.testing.assert_allclose(vector(state.memory, batched=True), controls, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(vector(state.shared), control, rtol=1e-3, atol=1e-4)


def test_scaffolds_controls_are_the_clients_gradients_and_their_mean(dataset, kind):
    """Karimireddy et al., Sec. 4: after a full round c is the mean of the c_k, since it was in the beginning."""
    _, state, _ = simulate(dataset, kind, HParams(RATE), algorithm=lambda hparams: scaffold())
    controls = vector(state.memory, batched=True)
    np.testing.assert_allclose(vector(state.shared), controls.mean(axis=0), rtol=1e-3, atol=1e-5)
    assert np.abs(controls).max() > 0.01


@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_fedprox_is_its_algorithm_2(mu, dataset, kind):
    make = lambda hparams: fedprox(mu=hparams.settings["mu"])
    p, state, records = simulate(dataset, kind, HParams(RATE, settings={"mu": mu}), algorithm=make, cohort_size=4)
    loop = Loop(dataset, kind)
    for clients, weights in cohorts(records):
        start = p
        for i, weight in zip(clients, weights, strict=True):
            pulled = loop.train(i, start, lambda g, w, start=start: g + mu * (w - start))
            p = p + weight * (pulled - start)
    np.testing.assert_allclose(vector(state.variables.params), p, **TOLERANCE)
    if mu == 0:
        _, plain, _ = simulate(dataset, kind, HParams(RATE), algorithm=lambda hparams: plain_sgd(), cohort_size=4)
        np.testing.assert_allclose(vector(state.variables.params), vector(plain.variables.params), rtol=1e-5)
