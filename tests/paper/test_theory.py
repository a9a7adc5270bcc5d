"""Theorem 2 compared with brute force and the rule, and the terms of the bound over a run's rounds."""

import numpy as np
import pytest

from fedsim.aggregators.arfl_weights import arfl_weights
from fedsim.paper import bound, client_history, theory
from tests.paper.run_folders import COUNTS, alphas, read, rule, run, verdicts


def brute_force(losses, num_examples, lam):
    """The minimum of Eq. 6 by bisection on eta of alpha_i = m_i [eta - L_i]_+ / lambda."""
    lambda_, low, high = lam * num_examples.sum(), losses.min(), losses.max() + lam * num_examples.sum()
    weights = lambda eta: num_examples * np.maximum(eta - losses, 0) / lambda_
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if weights(middle).sum() < 1 else (low, middle)
    return weights(low), low


@pytest.mark.parametrize("lam", [1e-3, 0.1, 1.0, 100.0])
def test_theorem_2(lam):
    rng = np.random.default_rng(1)
    num_examples, losses = rng.integers(1, 100, 12), rng.gamma(2.0, size=12).astype(np.float32).astype(float)
    best = theory.compute_optimum(losses, num_examples, lam)
    alpha, threshold = brute_force(losses, num_examples, lam)
    np.testing.assert_allclose(best.alpha, alpha, atol=1e-9)
    assert best.threshold == pytest.approx(threshold)
    assert best.num_weighted == (alpha > 0).sum()
    ours = arfl_weights(losses.astype(np.float32), num_examples, lam)
    for name, value in zip(best._fields, ours, strict=True):
        np.testing.assert_allclose(getattr(best, name), value, rtol=1e-4, atol=1e-6)
    least = theory.compute_objective(best.alpha, losses, num_examples, lam)
    for _ in range(20):
        assert least <= theory.compute_objective(rng.dirichlet(np.ones(12)), losses, num_examples, lam)


def test_bound(tmp_path):
    losses = np.asarray([[2.0, 2.2, 2.4, 2.6], [0.5, 0.6, 0.7, 2.5]])
    best = [theory.compute_optimum(row, COUNTS, 1.0) for row in losses]
    rows = [row for t, optimum in enumerate(best, 1) for row in alphas(t, optimum.alpha, losses[t - 1])]
    keys = rule("arfl", "shuffling", 0.25, **{"arfl.lam": 1.0})
    results = read(tmp_path, "bound", [run(keys, [10, 30, 50], rows)])
    claims = bound.claims(results)
    assert verdicts(claims) == ["holds", "holds", "holds"]
    assert claims[1].measured == "in 2 of 2 rounds"
    terms = theory.compute_terms(client_history.read_history(results, 0), 1.0)
    np.testing.assert_allclose(terms.risk, [b.alpha @ row for b, row in zip(best, losses, strict=True)], rtol=1e-6)
    np.testing.assert_allclose(terms.norm, [np.sqrt((b.alpha**2 / COUNTS).sum()) for b in best], rtol=1e-6)
    np.testing.assert_allclose(terms.objective, terms.risk + 50 * terms.norm**2)
    assert terms.num_weighted.tolist() == [b.num_weighted for b in best]
    solid, dashed = bound.figures(results)["bound"].axes[0].lines
    np.testing.assert_allclose(solid.get_ydata(), terms.objective)
    np.testing.assert_allclose(dashed.get_ydata(), terms.risk)
    evaluated = run(keys | {"record.clients": "evaluated", "server.eval_every": 2}, [10, 30, 50], rows[4:])
    claims = bound.claims(read(tmp_path, "evaluated", [evaluated]))  # all reported in round 2: nothing is missing
    assert verdicts(claims) == ["holds", "holds", "not run"]  # a single round is not a decrease
    without = [row | {"loss": None} if row["client_id"] == 1 else row for row in rows[4:]]
    claims = bound.claims(read(tmp_path, "without", [evaluated | {"clients": without}]))
    assert verdicts(claims) == ["-", "-", "-"]
    assert "record.clients" in claims[0].measured
    wrong = [row | {"alpha": 0.25} for row in rows]
    assert verdicts(bound.claims(read(tmp_path, "wrong", [run(keys, [10, 30, 50], wrong)])))[0] == "fails"


def test_last_reported_losses(tmp_path):
    """A client that is not in the cohort counts with its last loss; rounds before all have reported are left out."""

    def row(round_, client, loss, alpha):
        of_client = {"client_id": client, "num_examples": (10, 20)[client], "corrupted": False}
        return of_client | {"round": round_, "loss": loss, "alpha": alpha}

    rows = [row(1, 0, 2.0, None), row(2, 1, 3.0, None), row(3, 0, 1.0, 0.4), row(3, 1, None, 0.6), row(1, 1, None, 0.5)]
    of_run = client_history.read_history(read(tmp_path, "bound", [run(rule("arfl"), [10, 30, 40, 50], rows)]), 0)
    assert of_run.rounds.tolist() == [1, 3]
    np.testing.assert_allclose(of_run.losses, [[2.0, np.nan], [1.0, 3.0]])
    assert theory.compute_terms(of_run, 1.0).rounds.tolist() == [3]
