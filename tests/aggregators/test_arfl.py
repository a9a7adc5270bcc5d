"""ARFL's weights against the problem that they solve: Eq. 6 of the paper for fixed parameters."""

from collections.abc import Callable
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.aggregators.arfl import arfl
from fedsim.aggregators.arfl_weights import arfl_weights
from fedsim.core.types import CohortReport


def without_sorting(fn: Callable) -> Callable:
    """`fn` in the form for large populations, for any."""

    def traced(*args):
        with mock.patch("fedsim.aggregators.arfl_weights.MAX_SORTED", 0):
            return fn(*args)

    return jax.jit(traced)


solve, solve_by_elimination = jax.jit(arfl_weights), without_sorting(arfl_weights)
BOTH_FORMS = {"sorting": solve, "elimination": solve_by_elimination}
both_forms = pytest.mark.parametrize("solve", BOTH_FORMS.values(), ids=BOTH_FORMS)


def by_bisection(losses: np.ndarray, num_examples: np.ndarray, lam: float) -> np.ndarray:
    """alpha_i = m_i [eta - L_i]_+ / lambda with eta found by bisection, in float64 (the paper's appendix B)."""
    losses, num_examples = np.asarray(losses, np.float64), np.asarray(num_examples, np.float64)
    total = lam * num_examples.sum()
    low, high = losses.min(), losses.max() + total / num_examples.min()
    for _ in range(200):
        eta = (low + high) / 2
        low, high = (eta, high) if (num_examples * np.maximum(eta - losses, 0)).sum() < total else (low, eta)
    return num_examples * np.maximum(high - losses, 0) / total


def check_kkt(alpha: np.ndarray, losses: np.ndarray, num_examples: np.ndarray, lam: float, tolerance: float) -> None:
    """Feasible, and L_i + lambda alpha_i / m_i is eta for clients with a weight and at least eta for others."""
    alpha = np.asarray(alpha, np.float64)
    assert (alpha >= 0).all()
    assert alpha.sum() == pytest.approx(1, abs=1e-5)
    gradient = losses + lam * num_examples.sum() * alpha / num_examples
    eta = np.average(gradient, weights=alpha)
    scale = np.abs(losses).max() + lam * num_examples.sum() / num_examples.min() * alpha.max() + 1e-30
    assert np.abs(np.where(alpha > 0, gradient - eta, 0)).max() <= tolerance * scale
    assert (np.where(alpha == 0, eta - gradient, 0)).max() <= tolerance * scale


@st.composite
def problems(draw):
    n = draw(st.sampled_from([1, 2, 3, 10, 100, 1000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([0.0, 1e-3, 1.0, 10.0]))
    losses = (2 + spread * rng.exponential(size=n)).astype(np.float32)
    if draw(st.booleans()):  # ties
        losses = np.round(losses, 1).astype(np.float32)
    num_examples = draw(
        st.sampled_from([np.full(n, 50), rng.integers(1, 300, n), np.maximum(1, 10 ** (5 * rng.random(n))).astype(int)])
    )
    return losses, num_examples.astype(np.int32), 10 ** draw(st.floats(-4, 6))


@both_forms
@given(problem=problems())
@settings(max_examples=80)
def test_solves_the_problem(solve, problem):
    losses, num_examples, lam = problem
    alpha, p, average, threshold = (np.asarray(a) for a in solve(losses, num_examples, lam))
    check_kkt(alpha, losses.astype(np.float64), num_examples, lam, tolerance=2e-5)
    expected = by_bisection(losses, num_examples, lam)
    np.testing.assert_allclose(alpha, expected, rtol=5e-3, atol=2e-5)
    assert p == (alpha > 0).sum() or np.isclose(expected, 0, atol=1e-6).any()
    best = np.sort(losses)[:p]
    assert best.min() - 1e-4 <= average <= best.max() + 1e-4
    assert threshold >= best.max()


@both_forms
def test_theorem_2_in_float64(solve):
    """The closed form as the paper writes it: p by its condition, then alpha."""
    rng = np.random.default_rng(1)
    losses, num_examples, lam = rng.gamma(2, size=30), rng.integers(5, 100, 30), 0.7
    order = np.argsort(losses)
    m, big_l, lam_m = num_examples[order], losses[order], lam * num_examples.sum()
    m_k = np.cumsum(m)
    average = np.cumsum(m * big_l) / m_k
    p = (1 + m_k * (average - big_l) / lam_m > 0).sum()
    expected = np.zeros(30)
    expected[order] = m / m_k[p - 1] * np.maximum(0, 1 + m_k[p - 1] * (average[p - 1] - big_l) / lam_m)
    alpha, got_p, got_average, threshold = solve(jnp.float32(losses), num_examples, lam)
    np.testing.assert_allclose(alpha, expected, atol=1e-6)
    assert got_p == p
    assert got_average == pytest.approx(average[p - 1], rel=1e-5)
    assert threshold == pytest.approx(lam_m / m_k[p - 1] + average[p - 1], rel=1e-5)


@both_forms
def test_nonfinite_losses_and_empty_clients_have_no_weight(solve):
    losses = jnp.asarray([1.0, jnp.inf, jnp.nan, 2.0, 0.0])
    num_examples = jnp.asarray([10, 10, 10, 30, 0])
    alpha, p, average, _ = solve(losses, num_examples, 1e6)
    np.testing.assert_allclose(alpha, [0.25, 0, 0, 0.75, 0], atol=1e-5)
    assert p == 2
    assert average == pytest.approx(1.75)
    chex.assert_trees_all_equal(solve(jnp.full(3, jnp.inf), jnp.ones(3, int), 1.0)[0], jnp.zeros(3))


def test_losses_are_updated_after_the_weights():
    """Algorithm 1: the round uses the previous weights; then the cohort's losses replace the old ones."""
    rule = arfl(lam=1.0)
    num_examples, losses = jnp.asarray([10, 10, 10, 10]), jnp.asarray([1.0, 1.0, 1.0, 9.0])
    state = rule.init({}, num_examples, losses)
    ids = jnp.asarray([3, 1])
    valid, updates = jnp.asarray([True, False]), {"w": jnp.ones((2, 1))}
    report = CohortReport(ids, num_examples[ids], jnp.asarray([0.5, jnp.nan]), updates, valid)
    step = jax.jit(rule.aggregate)
    aggregate, new = step(state, report, jax.random.key(0))
    np.testing.assert_allclose(aggregate.weights, [0, 0])  # client 3 had no weight yet, client 1 did not report
    np.testing.assert_allclose(new.losses, [1, 1, 1, 0.5])  # NaN: the last loss is kept
    np.testing.assert_allclose(new.alpha, arfl_weights(new.losses, num_examples, 1.0)[0])
    assert new.alpha[3] > new.alpha[0]
    _, ruined = step(new, report._replace(losses=jnp.asarray([jnp.inf, 1.0])), jax.random.key(0))
    assert ruined.alpha[3] == 0  # a non-finite loss is kept as reported


def test_numbers_of_examples_are_the_last_reported_ones():
    """A client that was excluded at first takes part later, and one that stops to forge its number counts as it is."""
    rule, losses, ids = arfl(lam=1e6), jnp.ones(3), jnp.arange(3)
    report = CohortReport(ids, jnp.asarray([10, 10, 10]), losses, {"w": jnp.ones((3, 1))}, jnp.ones(3, bool))
    state = rule.init({}, jnp.asarray([0, 10, 90]), losses)
    np.testing.assert_allclose(state.alpha, [0, 0.1, 0.9], atol=1e-5)
    step = jax.jit(rule.aggregate)
    _, after = step(state, report, jax.random.key(0))
    np.testing.assert_allclose(after.alpha, [1 / 3] * 3, atol=1e-5)
    absent = jnp.asarray([False, True, False])  # excluded in this round, or with a forged number that never arrived
    unanswered = report._replace(
        num_examples=jnp.asarray([10, 0, 10]), losses=jnp.where(absent, jnp.nan, 1.0), valid=~absent
    )
    _, later = step(after, unanswered, jax.random.key(0))
    np.testing.assert_allclose(later.alpha, after.alpha, atol=1e-5)


def test_losses_observed_after_aggregation_give_the_same_state():
    """Either order gives the previous weights; a client without a reported loss is not excluded."""
    rule, rng = arfl(lam=0.3), np.random.default_rng(3)
    num_examples, losses = jnp.asarray(rng.integers(5, 50, 9)), jnp.float32(rng.gamma(2, size=9))
    state, ids = rule.init({}, num_examples, losses), jnp.asarray([5, 0, 7, 2])
    reported = jnp.float32([0.2, 3.0, jnp.nan, 1.0])  # client 7 does not report
    valid = jnp.asarray([True, True, False, True])
    report = CohortReport(
        ids, num_examples[ids], reported, {"w": jnp.asarray(rng.normal(size=(4, 3)), jnp.float32)}, valid
    )
    at_once, expected = rule.aggregate(state, report, jax.random.key(0))
    later, unchanged = rule.aggregate(state, report._replace(losses=jnp.full(4, jnp.nan)), jax.random.key(0))
    chex.assert_trees_all_equal(later, at_once)
    chex.assert_trees_all_equal(unchanged, state)
    chex.assert_trees_all_equal(rule.observe_losses(unchanged, report._replace(updates=())), expected)
    assert float(jnp.abs(expected.alpha - state.alpha).max()) > 0.05


@both_forms
def test_no_weight_if_the_gap_equals_lambda(solve):
    assert solve(jnp.asarray([0.0, 1.0]), jnp.asarray([1, 1]), 0.5)[1] == 1  # 1/2 (1 - 0) < 1/2 does not hold


weights_of_runs = jax.jit(jax.vmap(arfl_weights, (0, 0, None)))


@pytest.mark.parametrize("lam", [1e-6, 0.01, 0.5, 3.0, 1e30])
def test_many_clients_of_a_batch_of_runs(lam):
    """Some without a finite loss or examples."""
    rng = np.random.default_rng(0)
    losses = np.where(rng.random((2, 5000)) < 0.1, np.inf, rng.gamma(2.0, size=(2, 5000))).astype(np.float32)
    num_examples = rng.integers(0, 200, (2, 5000)).astype(np.int32)
    weights = weights_of_runs(losses, num_examples, lam)
    for run, (known, sizes) in enumerate(zip(losses, num_examples, strict=True)):
        participates, alpha = np.isfinite(known) & (sizes > 0), np.asarray(weights.alpha[run])
        relative_lam = np.float32(lam) * sizes.sum() / sizes[participates].sum()
        expected = by_bisection(known[participates], sizes[participates], relative_lam)
        np.testing.assert_allclose(alpha[participates], expected, rtol=1e-5, atol=1e-6 * expected.max())
        assert not alpha[~participates].any()
        assert weights.num_selected[run] == (expected > 0).sum()


@given(st.integers(0, 2**32 - 1), st.integers(0, 12))
@settings(max_examples=80)
def test_p_is_that_of_sorting_where_no_sum_is_rounded(seed, power):
    """Losses are multiples of 1/8, and so are their sums; ties, and gaps equal to lambda, are common."""
    losses = (np.random.default_rng(seed).integers(0, 64, 512) / 8).astype(np.float32)
    problem = losses, np.full(512, 3, np.int32), np.float32(2.0 ** (power - 9))
    assert solve_by_elimination(*problem).num_selected == solve(*problem).num_selected
