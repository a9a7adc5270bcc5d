"""Fang's attacks against float64 oracles written from the paper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim.aggregators import fedavg, multi_krum
from fedsim.attacks import fang
from fedsim.attacks.fang import max_lambda
from tests.aggregators.test_robust import krum_order
from tests.attacks.contexts import HONEST, KEY, MALICIOUS, VALID, forge, honest_rows, make_context, rows

VALID_ROWS = np.flatnonzero(VALID)


def make_context_with_model(seed=0, **options):
    context = make_context(seed, **options)
    rng = np.random.default_rng(3)
    model = jax.tree.map(lambda u: jnp.asarray(rng.normal(size=u.shape[1:]), jnp.float32), context.report.updates)
    return context._replace(variables=model)


@pytest.mark.parametrize("b", [2.0, 5.0])
def test_trimmed_mean_values_are_uniform_in_the_papers_interval(b):
    """For parameters of either sign."""
    fractions = []
    for seed in range(3):
        context = make_context_with_model(seed)
        start = rows(jax.tree.map(lambda a: a[None], context.variables))[0]
        x = honest_rows(context)
        forged = start + forge(fang(range_factor=b), context)
        for j, s in enumerate(np.sign(x.mean(axis=0))):
            largest, smallest = start[j] + x[:, j].max(), start[j] + x[:, j].min()
            if s < 0:
                interval = (largest, b * largest) if largest > 0 else (largest, largest / b)
            else:
                interval = (smallest / b, smallest) if smallest > 0 else (b * smallest, smallest)
            fractions += list((forged[:, j] - interval[0]) / (interval[1] - interval[0]))
    assert min(fractions) > -1e-4
    assert max(fractions) < 1 + 1e-4
    assert np.mean(fractions) == pytest.approx(0.5, abs=5 / np.sqrt(12 * len(fractions)))


def test_max_lambda_is_the_bound_of_theorem_1():
    for seed in range(3):
        context = make_context(seed)
        x, d = honest_rows(context), 10
        n, c = 7, 2
        distances = np.sort(np.linalg.norm(x[:, None] - x[None], axis=-1), axis=1)[:, 1:]
        first = distances[:, : n - c - 2].sum(axis=1).min() / ((n - 2 * c - 1) * np.sqrt(d))
        expected = first + np.linalg.norm(x, axis=1).max() / np.sqrt(d)
        assert max_lambda(context) == pytest.approx(expected, rel=1e-5)


def test_lambda_is_the_largest_with_which_krum_selects_a_malicious_client():
    krum = multi_krum(num_byzantine=2, num_selected=1)
    context = make_context(rule=krum)
    x = rows(context.report.updates)
    signs = np.sign(x[HONEST].mean(axis=0))
    for strength in float(max_lambda(context)) * 0.5 ** np.arange(20):
        updates = np.where(MALICIOUS[:, None], -strength * signs, x)
        if is_selected := MALICIOUS[krum_order(updates, VALID_ROWS, 2)[0]]:
            break
    assert is_selected
    forged = forge(fang(against="krum"), context)
    np.testing.assert_allclose(forged, np.broadcast_to(-strength * signs, forged.shape), rtol=1e-4)


@pytest.mark.parametrize("against", ["krum", "trimmed_mean"])
def test_updates_are_finite_with_one_honest_client(against):
    forged = forge(fang(against=against), make_context_with_model(malicious=np.arange(8) >= 1, rule=multi_krum()))
    assert np.isfinite(forged).all()
    assert forged.any()


def test_the_smallest_lambda_is_sent_if_krum_selects_no_malicious_client():
    weights = jnp.zeros(8).at[0].set(1.0)
    aggregate = lambda report: fedavg().aggregate((), report, KEY)[0]._replace(weights=weights)
    context = make_context()._replace(aggregate=aggregate)
    expected = -float(max_lambda(context)) / 4 * np.sign(honest_rows(context).mean(axis=0))
    forged = forge(fang(against="krum", num_halvings=3), context)
    np.testing.assert_allclose(forged, np.broadcast_to(expected, forged.shape), rtol=1e-4)
