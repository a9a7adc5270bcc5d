"""ARFL's weights at the limits of float32 and int32, against rational arithmetic and float64."""

from fractions import Fraction

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedsim.aggregators.arfl_weights import _total
from tests.aggregators.test_arfl import BOTH_FORMS, both_forms, by_bisection

total_of = jax.jit(_total)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=12).filter(any), st.integers(0, 31))
@settings(max_examples=80)
def test_total_number_of_examples_does_not_overflow(num_examples, shift):
    """Rounded once if the sum fits in int32, and correct above: reports may be forged."""
    num_examples = np.right_shift(np.asarray(num_examples), shift)
    padded = np.zeros(12, np.int32)  # the same shape for all: compiled once
    padded[: len(num_examples)] = num_examples
    total, expected = int(total_of(padded)), int(num_examples.sum())
    if expected < 2**31:
        assert total == int(np.float32(expected))
    assert total == pytest.approx(expected, rel=1e-6)


@both_forms
def test_weights_sum_to_one_with_huge_forged_numbers_of_examples(solve):
    losses, num_examples = (
        np.asarray([1.0, 2.0, 3.0, 1.5], np.float32),
        np.asarray([2**31 - 1, 2**31 - 1, 2**31 - 1, 10**6]),
    )
    alpha = solve(losses, num_examples.astype(np.int32), 1.0)[0]
    np.testing.assert_allclose(alpha, by_bisection(losses, num_examples, 1.0), rtol=1e-5)


def exact_weights(losses: np.ndarray, num_examples: np.ndarray, lam: float) -> np.ndarray:
    """alpha_i = m_i [eta - L_i]_+ / lambda in rational numbers, with the eta for which they sum to 1."""
    order = np.argsort(losses, kind="stable").tolist()
    participating = [i for i in order if np.isfinite(losses[i]) and num_examples[i] > 0]
    m, value = (
        [int(count) for count in num_examples],
        [Fraction(float(loss)) if np.isfinite(loss) else None for loss in losses],
    )
    lambda_, alpha = Fraction(lam) * sum(m), np.zeros(len(m))
    for k in range(len(participating), 0, -1):  # the largest number of clients without a negative weight
        best = participating[:k]
        eta = (lambda_ + sum(m[i] * value[i] for i in best)) / sum(m[i] for i in best)
        if eta > value[best[-1]]:
            alpha[best] = [float(m[i] * (eta - value[i]) / lambda_) for i in best]
            break
    return alpha


@st.composite
def extremes(draw):
    """12 clients with losses, numbers of examples and lambda from their entire ranges."""
    power = lambda low, high: st.floats(low, high).map(lambda exponent: 10.0**exponent)
    rows = st.lists(
        st.one_of(power(-30, 38), power(-1, 1), st.sampled_from([0.0, 1.0, np.inf])), min_size=12, max_size=12
    )
    num_examples = st.lists(st.one_of(st.integers(0, 100), power(0, 8.2).map(int)), min_size=12, max_size=12)
    return np.float32(draw(rows)), np.asarray(draw(num_examples)), float(np.float32(draw(power(-29.9, 29.9))))


@given(problem=extremes())
@settings(max_examples=300)
@example(problem=(np.float32([1.0] * 2 + [np.inf] * 10), np.asarray([1, 2] + [10**8] * 10), 1e30))
@example(problem=(np.float32([0.0, 1e30] + [np.inf] * 10), np.asarray([1, 1] + [10**8] * 10), 9e29))
@example(problem=(np.float32([1.0] * 2 + [np.inf] * 10), np.asarray([1, 1] + [10**8] * 10), 1e-30))
@example(problem=(np.float32([1.0, 0.1, 1.0] + [np.inf] * 9), np.asarray([10**8, 1, 10**6] + [0] * 9), 1e-9))
@example(problem=(np.float32([1.0, 0.1, 1.2] + [np.inf] * 9), np.asarray([10**8, 1, 10**5] + [0] * 9), 1.2e-8))
def test_alpha_matches_rational_arithmetic_for_every_lambda(problem):
    losses, num_examples, lam = problem
    expected = exact_weights(losses, num_examples, lam)
    for form, solve in BOTH_FORMS.items():
        alpha = np.asarray(solve(losses, num_examples.astype(np.int32), lam)[0], np.float64)
        np.testing.assert_allclose(alpha, expected, atol=2e-5, err_msg=form)
