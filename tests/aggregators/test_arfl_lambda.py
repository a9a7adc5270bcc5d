"""The lambda that gives a target, against ARFL's weights by bisection in float64; and what follows in a round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim import RootEvaluator
from fedsim.aggregators.arfl import arfl
from fedsim.aggregators.arfl_weights import arfl_weights, lam_for_clients, lam_for_effective
from fedsim.core.types import CohortReport
from tests.aggregators.test_arfl import by_bisection, solve, without_sorting

KEY = jax.random.key(0)
for_clients, for_effective = jax.jit(lam_for_clients), jax.jit(lam_for_effective)
for_many_clients = without_sorting(lam_for_clients)


def draw_clients(seed, n=12):
    rng = np.random.default_rng(seed)
    return rng.gamma(2.0, size=n).astype(np.float32), rng.integers(1, 200, n).astype(np.int32)


@given(st.integers(0, 2**32 - 1), st.floats(1, 12))
@settings(max_examples=60)
def test_lam_for_clients_reaches_the_target(seed, target):
    losses, num_examples = draw_clients(seed)
    target = np.float32(target)
    lam = float(for_clients(losses, num_examples, target))
    alpha = by_bisection(losses, num_examples, lam) if lam < 1e20 else num_examples / num_examples.sum()
    assert (alpha > 1e-7).sum() <= int(target)
    above = by_bisection(losses, num_examples, lam * 1.01) if lam < 1e20 else alpha
    assert (above > 0).sum() > int(target) or int(target) == len(losses)


@given(st.integers(0, 2**32 - 1), st.floats(1, 40), st.booleans())
@settings(max_examples=80)
def test_lam_of_many_clients_is_that_of_few(seed, target, has_ties):
    losses, num_examples = draw_clients(seed, n=32)
    rng = np.random.default_rng(seed)
    losses = np.where(rng.random(32) < 0.1, np.inf, np.floor(losses) if has_ties else losses)  # many are 0
    num_examples = np.where(rng.random(32) < 0.1, 0, num_examples).astype(np.int32)
    problem = losses.astype(np.float32), num_examples, np.float32(target)
    np.testing.assert_allclose(for_many_clients(*problem), for_clients(*problem), rtol=1e-5)


@given(st.integers(0, 2**32 - 1), st.floats(1, 13))
@settings(max_examples=60)
def test_lam_for_effective_reaches_the_target(seed, target):
    losses, num_examples = draw_clients(seed)
    lam = float(for_effective(losses, num_examples, target))
    alpha = by_bisection(losses, num_examples, lam) if 1e-20 < lam < 1e20 else None
    effective = lambda alpha: len(losses) / (num_examples.sum() * (alpha**2 / num_examples).sum())
    best = (
        len(losses) * num_examples[np.argmin(losses)] / num_examples.sum()
    )  # of the best client alone: the least that there is
    if lam >= 1e20:
        assert target >= len(losses) * (1 - 1e-4)
    elif alpha is None:
        assert target <= best * (1 + 1e-4)
    else:
        assert effective(alpha) == pytest.approx(max(target, best), rel=2e-3)


def test_tied_clients_have_a_weight_together_or_not_at_all():
    losses, num_examples = jnp.asarray([1.0, 2.0, 2.0, 3.0]), jnp.full(4, 10)
    for target, chosen in ((1, 1), (2, 1), (3, 3), (4, 4)):
        assert (solve(losses, num_examples, for_clients(losses, num_examples, target))[0] > 0).sum() == chosen
    same = jnp.ones(4)
    np.testing.assert_allclose(solve(same, num_examples, for_clients(same, num_examples, 2))[0], np.full(4, 0.25))


def test_excluded_clients_do_not_count():
    losses, num_examples = jnp.asarray([1.0, jnp.inf, 2.0, 0.5, 4.0]), jnp.asarray([10, 10, 10, 0, 10])
    assert for_clients(losses, num_examples, 3) == np.float32(1e30)
    np.testing.assert_allclose(for_effective(losses, num_examples, 3), np.float32(1e30))
    assert (solve(losses, num_examples, for_clients(losses, num_examples, 2))[0] > 0).sum() == 2
    for find in (for_clients, for_effective):
        assert jnp.isfinite(find(jnp.full(3, jnp.inf), jnp.ones(3, int), 2))


COUNTS, LOSSES = jnp.asarray([10, 10, 10, 10]), jnp.asarray([1.0, 2.0, 3.0, 4.0])


def report_of(ids, losses, measurements=None):
    ids = jnp.asarray(ids)
    updates = {"w": jnp.ones((len(ids), 1))}
    return CohortReport(
        ids, COUNTS[ids], jnp.asarray(losses), updates, jnp.ones(len(ids), bool), measurements=measurements
    )


def test_auto_records_lambda_and_keeps_a_majority():
    rule = arfl(lam="auto")
    state = rule.init({}, COUNTS, LOSSES)
    np.testing.assert_array_equal(state.alpha > 0, [True, True, True, False])
    aggregate, state = jax.jit(rule.aggregate)(state, report_of([0, 3], [5.0, 0.5]), KEY)
    np.testing.assert_allclose(aggregate.weights, [1, 0])
    np.testing.assert_array_equal(state.alpha > 0, [False, True, True, True])
    assert aggregate.info["lam"] == state.lam == lam_for_clients(state.losses, COUNTS, 3)


def test_smoothing_is_an_exponential_average():
    rule, plain = arfl(smoothing=0.75), arfl()
    step = jax.jit(rule.aggregate)
    state, expected = rule.init({}, COUNTS, LOSSES), 4.0
    for loss in (1.0, 0.5, 2.0):
        state = step(state, report_of([0, 3], [jnp.nan, loss]), KEY)[1]
        expected = 0.75 * expected + 0.25 * loss
        np.testing.assert_allclose(state.losses, [1, 2, 3, expected], rtol=1e-6)
    lost = step(state, report_of([3], [jnp.inf]), KEY)[1]
    assert jnp.isinf(lost.losses[3])
    next_state = step(lost, report_of([3], [2.5]), KEY)[1]
    assert next_state.losses[3] == 2.5  # an infinite loss does not affect the average
    last = jax.jit(plain.aggregate)(plain.init({}, COUNTS, LOSSES), report_of([3], [2.5]), KEY)[1]
    assert last.losses[3] == 2.5


def test_root_losses_apply_in_the_same_round_and_reported_losses_are_ignored():
    rule = arfl(lam=0.1, source="root")
    state = rule.init({}, COUNTS, LOSSES)
    assert rule.observe_losses is None
    np.testing.assert_array_equal(state.alpha, np.zeros(4))  # no loss is known yet
    report = report_of([0, 1, 3], [9.0, 9.0, 0.0], jnp.asarray([1.0, 1.1, 7.0]))
    aggregate, state = jax.jit(rule.aggregate)(state, report, KEY)
    expected = arfl_weights(jnp.asarray([1.0, 1.1, jnp.inf, 7.0]), COUNTS, 0.1)[0]
    np.testing.assert_allclose(state.alpha, expected)
    np.testing.assert_allclose(aggregate.weights, expected[jnp.asarray([0, 1, 3])], rtol=1e-6)
    assert aggregate.weights[2] == 0
    assert float(jnp.sum(aggregate.weights)) == pytest.approx(1)
    root = RootEvaluator(lambda updates: jnp.asarray([1.0, jnp.nan, 7.0]), None)
    np.testing.assert_array_equal(rule.measure(root, report), [1, np.inf, 7])  # a loss that is not finite is no loss


def test_no_client_beyond_the_target_has_a_weight():
    cases = [draw_clients(seed, n=20) for seed in range(400)]  # in some, rounding would give one 1e-8

    def solve_case(case):
        return arfl_weights(*case, lam_for_clients(*case, 11))

    losses, num_examples = map(np.stack, zip(*cases, strict=True))
    weights = jax.jit(lambda *cases: jax.lax.map(solve_case, cases))(losses, num_examples)
    is_selected = losses <= np.sort(losses)[:, 10:11]
    assert not np.asarray(weights.alpha)[~is_selected].any()
    assert (weights.num_selected == 11).all()
