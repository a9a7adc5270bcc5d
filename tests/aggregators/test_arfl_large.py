"""ARFL for many clients, which are not sorted: the same weights, lambda and states, whatever the guess."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.aggregators.arfl import arfl
from fedsim.aggregators.arfl_lambda import lam_for_clients
from fedsim.aggregators.arfl_weights import MAX_SORTED, arfl_weights
from fedsim.aggregators.bisection import largest_below
from fedsim.core.types import CohortReport
from tests.aggregators.test_arfl import solve_by_bisection, without_sorting

N = 20_000


def draw_population(seed):
    rng = np.random.default_rng(seed)
    losses = np.where(rng.random(N) < 0.1, np.inf, rng.gamma(2.0, size=N)).astype(np.float32)
    return losses, rng.integers(0, 200, N).astype(np.int32)


def theorem_2(losses, num_examples, lam):
    """alpha and p by sorting, in float64."""
    participating = np.isfinite(losses) & (num_examples > 0)
    order = np.argsort(np.where(participating, losses, np.inf), kind="stable")[: participating.sum()]
    q, big_l, lam = num_examples / num_examples.sum(), losses.astype(np.float64), float(np.float32(lam))
    cumulative = np.cumsum(q[order])
    gaps = np.cumsum(np.roll(cumulative, 1) * np.diff(big_l[order], prepend=big_l[order][0]))
    p = (gaps < lam).sum()
    threshold = big_l[order][p - 1] + (lam - gaps[p - 1]) / cumulative[p - 1]
    return np.where(participating, q * np.maximum(threshold - np.where(participating, big_l, 0), 0) / lam, 0), p


@pytest.mark.parametrize("lam", [1e-6, 0.01, 0.5, 3.0, 1e30])
def test_many_clients_match_theorem_2(lam):
    losses, num_examples = draw_population(0)
    assert losses.size > MAX_SORTED
    alpha, p, _, _ = jax.jit(arfl_weights)(losses, num_examples, lam)
    expected, expected_p = theorem_2(losses, num_examples, lam)
    assert p == expected_p
    np.testing.assert_allclose(alpha, expected, rtol=1e-6, atol=1e-6 * expected.max())
    assert np.sum(np.asarray(alpha, np.float64)) == pytest.approx(1, abs=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(0, 12))
@settings(max_examples=80)
def test_p_is_that_of_sorting_where_no_sum_is_rounded(seed, power):
    """Losses are multiples of 1/8, and so are their sums; ties, and gaps equal to lambda, are common."""
    rng = np.random.default_rng(seed)
    losses = (rng.integers(0, 64, 512) / 8).astype(np.float32)
    num_examples, lam = np.full(512, 3, np.int32), np.float32(2.0 ** (power - 9))
    chex.assert_trees_all_equal(solve_by_bisection(losses, num_examples, lam)[1], solve(losses, num_examples, lam)[1])


@given(st.integers(0, 2**32 - 1), st.floats(1, 40), st.booleans())
@settings(max_examples=80)
def test_lam_for_clients_is_that_of_sorting(seed, target, has_ties):
    rng = np.random.default_rng(seed)
    losses = np.where(rng.random(32) < 0.1, np.inf, rng.gamma(2.0, size=32)).astype(np.float32)
    losses = np.floor(losses) if has_ties else losses  # many are 0
    num_examples = rng.integers(0, 200, 32).astype(np.int32)
    lam = lam_by_counting(losses, num_examples, np.float32(target))
    np.testing.assert_allclose(lam, lam_by_sorting(losses, num_examples, np.float32(target)), rtol=1e-5)
    alpha, p, *_ = solve_by_bisection(losses, num_examples, lam)
    assert p == (np.asarray(alpha) > 0).sum() or np.sort(alpha)[-int(p) - 1] < 1e-5


solve = jax.jit(arfl_weights)
lam_by_sorting = jax.jit(lam_for_clients)
lam_by_counting = without_sorting(lam_for_clients)
with_guess = without_sorting(arfl_weights)


@given(st.integers(0, 2**32 - 1), st.sampled_from([-np.inf, -1.0, 0.0, 1e-30, 0.7, 1.0, 2.0, 1e30, np.inf, np.nan]))
@settings(max_examples=50)
def test_a_guess_changes_no_bit(seed, guess):
    rng = np.random.default_rng(seed)
    losses, num_examples = rng.gamma(2.0, size=300).astype(np.float32), rng.integers(0, 200, 300).astype(np.int32)
    lam = np.float32(10 ** rng.uniform(-6, 3))
    expected = with_guess(losses, num_examples, lam, np.float32(np.nan))
    chex.assert_trees_all_equal(with_guess(losses, num_examples, lam, np.float32(guess)), expected)
    chex.assert_trees_all_equal(with_guess(losses, num_examples, lam, expected.threshold), expected)


@pytest.mark.parametrize("lam", [0.5, "auto"])
def test_states_of_many_clients_follow_reports(lam):
    """The last threshold is the guess of the next round; a state equals one that is computed from its losses."""
    losses, num_examples = draw_population(1)
    rule = arfl(lam=lam)
    update = jax.jit(lambda state, report: rule.aggregate(state, report, jax.random.key(0)))
    state, rng = jax.jit(rule.init)({}, jnp.asarray(num_examples), jnp.asarray(losses)), np.random.default_rng(2)
    for _ in range(3):
        ids = jnp.asarray(rng.choice(N, 50, replace=False))
        new = jnp.asarray(rng.gamma(2.0, size=50), jnp.float32)
        report = CohortReport(ids, state.num_examples[ids], new, {"w": jnp.ones((50, 1))}, jnp.ones(50, bool))
        before = state.alpha[ids]
        aggregate, state = update(state, report)
        np.testing.assert_allclose(aggregate.weights, before / before.sum(), rtol=1e-5)
        np.testing.assert_array_equal(state.losses[ids], new)
        expected, p = theorem_2(np.asarray(state.losses), num_examples, lam if lam == 0.5 else state.lam)
        np.testing.assert_allclose(state.alpha, expected, rtol=1e-5, atol=1e-6 * expected.max())
        assert state.num_selected == p
    if lam == "auto":
        participating = np.isfinite(state.losses) & (num_examples > 0)
        assert state.num_selected == participating.sum() // 2 + 1


def test_clients_of_a_batch_of_runs_are_selected_as_alone():
    population = [draw_population(seed) for seed in range(3)]
    losses, num_examples = (jnp.asarray(np.stack(values)) for values in zip(*population, strict=True))
    batch = jax.jit(jax.vmap(lambda *args: arfl_weights(*args, 0.3)))(losses, num_examples)
    alone = [jax.jit(arfl_weights)(*args, 0.3) for args in zip(losses, num_examples, strict=True)]
    np.testing.assert_array_equal(batch.num_selected, [weights.num_selected for weights in alone])
    np.testing.assert_allclose(batch.alpha, [weights.alpha for weights in alone], rtol=1e-5, atol=1e-9)


# `largest_below`


@given(st.floats(-100, 100, width=32), st.floats(-3, 3), st.sampled_from([0.0, -50.0, 1e-20, 99.0]))
@settings(max_examples=80)
def test_largest_below_is_exact(bound, exponent, guess):
    """The next float32 number does not fulfill the condition; the function has steps, negative values and slopes."""
    fn = lambda x: jnp.floor(x * 4) / 4 + jnp.maximum(x, 0.0) * np.float32(10**exponent)
    x = find(np.float32(bound), np.float32(10**exponent), np.float32(guess))
    assert -200 <= x <= 1000
    assert fn(x) < bound
    following = np.nextafter(x, np.float32(np.inf))
    following = np.float32(0) if abs(following) < np.finfo(np.float32).tiny else following  # as XLA sees it
    assert x == 1000 or not fn(following) < bound


@jax.jit
def find(bound, slope, guess):
    fn = lambda x: jnp.floor(x * 4) / 4 + jnp.maximum(x, 0.0) * slope
    return largest_below(fn, bound, jnp.float32(-200), jnp.float32(1000), guess)


def test_largest_below_of_an_empty_range_is_its_lower_end():
    assert largest_below(lambda x: x, 1.0, jnp.float32(jnp.inf), jnp.float32(-jnp.inf)) == jnp.inf
