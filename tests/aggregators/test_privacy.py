"""The epsilon of noisy clipping, against the papers' formulas in float64 and, if it is installed, dp-accounting."""

import math
from decimal import Decimal, localcontext
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from fedsim.aggregators import norm_clipping, privacy
from fedsim.core.types import Variables
from tests.aggregators.test_robust import KEY, report_of, updates_of

CASES = [(100, 10, 1.0), (1000, 10, 2.0), (20, 10, 5.0), (100, 20, 10.0), (10, 10, 3.0)]  # N, n, noise multiplier


@cache
def differences(z):
    """{l: log of the l-th forward difference at 0 of exp((x - 1) x / (2 z^2))}, with 400 digits."""
    with localcontext() as context:
        context.prec = 400
        values = [(Decimal(i * (i - 1)) / (2 * Decimal(z) ** 2)).exp() for i in range(257)]
        sums = {n: sum((-1) ** (n - i) * math.comb(n, i) * values[i] for i in range(n + 1)) for n in range(2, 257, 2)}
        return {n: float(value.ln()) for n, value in sums.items()}


def divergence(share, z, order):
    """Theorem 27 of Wang et al. for a Gaussian, bounded by the divergence without sampling."""
    e = lambda alpha: alpha / (2 * z * z)
    b = lambda even: differences(z)[even]
    logs = [0, math.log(share**2 * math.comb(order, 2) * min(4 * math.expm1(e(2)), 2 * math.exp(e(2))))]
    for j in range(3, order + 1):
        bound = min(math.log(4) + (b(j // 2 * 2) + b((j + 1) // 2 * 2)) / 2, math.log(2) + (j - 1) * e(j))
        logs.append(j * math.log(share) + math.log(math.comb(order, j)) + bound)
    return min(logsumexp(logs) / (order - 1), e(order))


def epsilon(divergences, delta):
    orders = zip(privacy.ORDERS.tolist(), divergences, strict=True)
    return min(r + math.log1p(-1 / a) - math.log(delta * a) / (a - 1) for a, r in orders)


@partial(jax.jit, static_argnums=4)
def spent(num_clients, num_sampled, z, delta, num_rounds):
    state = privacy.init_budget(jnp.ones(1000) * (jnp.arange(1000) < num_clients))
    state = jax.lax.fori_loop(0, num_rounds, lambda _, state: privacy.spend(state, num_sampled, z), state)
    return state.divergence, privacy.epsilon(state, delta)


@pytest.mark.parametrize(("num_clients", "num_sampled", "z"), CASES)
def test_epsilon_matches_the_formulas(num_clients, num_sampled, z):
    actual, shown = spent(num_clients, num_sampled, z, 1e-5, 100)
    expected = [100 * divergence(num_sampled / num_clients, z, order) for order in privacy.ORDERS.tolist()]
    np.testing.assert_allclose(actual, expected, rtol=1e-4)
    assert float(shown) == pytest.approx(epsilon(expected, 1e-5), rel=1e-4)


@pytest.mark.parametrize(("num_clients", "num_sampled", "z"), CASES)
def test_epsilon_matches_dp_accounting(num_clients, num_sampled, z):
    """At the same orders, bounded by the value without sampling, a bound that the library does not apply."""
    dp = pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: pip install fedsim-jax[oracle]")
    orders = privacy.ORDERS.tolist()
    accountant = dp.rdp.RdpAccountant(orders, dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp.SampledWithoutReplacementDpEvent(num_clients, num_sampled, dp.GaussianDpEvent(z)), 100)
    known, _ = dp.rdp.compute_epsilon(orders, np.minimum(accountant.rdp, 100 * privacy.ORDERS / (2 * z * z)), 1e-5)
    shown = float(spent(num_clients, num_sampled, z, 1e-5, 100)[1])
    assert shown == pytest.approx(known, rel=1e-3)


def recorded_epsilons(rule, reports):
    params = {"a": np.zeros(2), "b": np.zeros((1, 4))}
    state = rule.init(Variables(params, {}), jnp.asarray([5] * 12 + [0] * 3), None)
    values, aggregate_of = [], jax.jit(rule.aggregate)
    for report in reports:
        aggregate, state = aggregate_of(state, report, KEY)
        values.append(float(aggregate.info["epsilon"]))
    return values


def test_sampling_rate_counts_valid_clients_with_examples():
    all_valid = report_of(updates_of(0, 6))
    some = report_of(updates_of(0, 6), [True, True, False, True, False, True])
    no_valid_clients = report_of(updates_of(0, 6), np.zeros(6, bool))
    rule = norm_clipping(threshold=2.0, noise_std=1.5, delta=1e-4)
    values = recorded_epsilons(rule, [no_valid_clients, all_valid, some, no_valid_clients])
    rounds = [(6 / 12, 1.5 * 6 / 4), (4 / 12, 1.5 * 4 / 4)]  # one client moves the mean of n by 2 M / n
    each = [np.asarray([divergence(*settings, order) for order in privacy.ORDERS.tolist()]) for settings in rounds]
    expected = [0, epsilon(each[0], 1e-4), *[epsilon(each[0] + each[1], 1e-4)] * 2]
    np.testing.assert_allclose(values, expected, rtol=1e-4)


def test_epsilon_is_infinite_without_protection():
    report = report_of(updates_of(0, 6))
    with_statistics = report._replace(updates=report.updates._replace(statistics={"mean": jnp.zeros((6, 2))}))
    assert recorded_epsilons(norm_clipping(delta=1e-4), [report]) == [math.inf]
    assert recorded_epsilons(norm_clipping(delta=1e-4, noise_std=0.0), [report]) == [math.inf]
    assert recorded_epsilons(norm_clipping(delta=1e-4, noise_std=9.0, weighting="examples"), [report]) == [math.inf]
    assert recorded_epsilons(norm_clipping(delta=1e-4, noise_std=9.0), [with_statistics]) == [math.inf]
    weighted = norm_clipping(delta=1e-4, noise_std=9.0)
    assert recorded_epsilons(weighted, [report._replace(weights=jnp.full(6, 1 / 6))]) == [math.inf]
    assert norm_clipping(noise_std=9.0).aggregate((), report, KEY)[0].info == {}
