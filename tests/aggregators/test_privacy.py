"""The epsilon of noisy clipping against the papers' formulas in float64."""

import math
import sys
from decimal import Decimal, localcontext
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy.special import logsumexp

import fedsim
from fedsim.aggregators import norm_clipping
from fedsim.core.types import Variables
from fedsim.engine import make_plan
from fedsim.errors import ConfigError, FedsimError
from fedsim.runs import privacy
from fedsim.runs.folder import RunFolder
from fedsim.runs.schemas import as_table
from fedsim.runs.tables import info_rows
from tests.aggregators.test_robust import KEY, report_of, updates_of

CASES = [(1000, 10, 2.0), (100, 20, 10.0), (100, 80, 4.0), (10, 10, 3.0)]  # N, n, noise multiplier
ORDERS = privacy.ORDERS.tolist()


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


def epsilon(divergences, delta, orders=ORDERS):
    of_orders = zip(orders, divergences, strict=True)
    return min(r + math.log1p(-1 / a) - math.log(delta * a) / (a - 1) for a, r in of_orders)


@pytest.mark.parametrize(("num_clients", "num_sampled", "z"), CASES)
def test_epsilon_matches_the_formulas(num_clients, num_sampled, z):
    shown = privacy.epsilons([num_sampled / num_clients] * 100, [z] * 100, 1e-5)
    each = np.asarray([divergence(num_sampled / num_clients, z, order) for order in ORDERS])
    expected = [epsilon((1 + i) * each, 1e-5) for i in range(100)]
    assert shown[-1] == pytest.approx(expected[-1], rel=1e-3)
    assert (np.asarray(shown) >= np.asarray(expected) * (1 - 1e-6)).all()  # differences of large orders are rounded up


def test_rounds_without_clients_or_noise_under_poisson_sampling(caplog):
    assert privacy.poisson_epsilons([0, 0.1, 0.1], [0, 1, 0], 1e-4)[::2] == [0, math.inf]
    assert not caplog.records  # dp-accounting warns of orders without a number, which do not matter


def recorded(rule, reports):
    """{name: values of the rounds}."""
    params = {"a": np.zeros(2), "b": np.zeros((1, 4))}
    state = rule.init(Variables(params, {}), jnp.asarray([5] * 12 + [0] * 3), None)
    rounds, aggregate_of = [], jax.jit(rule.aggregate)
    for report in reports:
        aggregate, state = aggregate_of(state, report, KEY)
        rounds.append(aggregate.info)
    return {name: [float(info[name]) for info in rounds] for name in rounds[0]}


def test_sampling_rate_counts_valid_clients_with_examples():
    all_valid = report_of(updates_of(0, 6))
    some = report_of(updates_of(0, 6), [True, True, False, True, False, True])
    no_valid_clients = report_of(updates_of(0, 6), np.zeros(6, bool))
    rule = norm_clipping(threshold=2.0, noise_std=1.5, delta=1e-4)
    values = recorded(rule, [no_valid_clients, all_valid, some])
    np.testing.assert_allclose(values["sampling_rate"], [0, 6 / 12, 4 / 12])
    np.testing.assert_allclose(values["noise_multiplier"], [0, 1.5 * 6 / 4, 1.5 * 4 / 4])  # a client moves 2 M / n
    assert values["delta"] == [np.float32(1e-4)] * 3
    assert privacy.epsilons(values["sampling_rate"][:1], values["noise_multiplier"][:1], 1e-4) == [0]


def test_epsilon_is_infinite_without_protection():
    report = report_of(updates_of(0, 6))
    with_statistics = report._replace(updates=report.updates._replace(statistics={"mean": jnp.zeros((6, 2))}))
    noisy = norm_clipping(delta=1e-4, noise_std=9.0)
    for rule, reported in (
        (norm_clipping(delta=1e-4), report),
        (norm_clipping(delta=1e-4, noise_std=0.0), report),
        (norm_clipping(delta=1e-4, noise_std=9.0, weighting="examples"), report),
        (noisy, with_statistics),
        (noisy, report._replace(weights=jnp.full(6, 1 / 6))),
    ):
        assert recorded(rule, [reported])["noise_multiplier"] == [0]
    assert recorded(noisy, [report])["noise_multiplier"] != [0]
    assert recorded(norm_clipping(noise_std=9.0), [report]) == {}
    assert privacy.epsilons([0.5, 0.5], [9.0, 0.0], 1e-4)[1] == math.inf


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"client.algorithm": "scaffold"}, "client.algorithm = scaffold"),
        ({"client.algorithm": "fednova"}, "client.algorithm = fednova"),
        ({"server.pre_aggregators": ["clipping", "nnm"]}, "server.pre_aggregators = nnm"),
        ({"server.pre_aggregators": ["own.py:mix"]}, "server.pre_aggregators = own.py:mix"),
        ({"attack.kind": fedsim.sweep(["inf", "mimic"]), "attack.fraction": 0.2}, "attack.kind = mimic"),
        ({"attack.kind": "gaussian", "gaussian.center": "mean", "attack.fraction": 0.2}, "gaussian.center = mean"),
        ({"attack.kind": "model_replacement", "attack.fraction": 0.2}, "attack.kind = model_replacement without"),
        ({"corruption.kind": "shift", "data.name": "separable_2d"}, "corruption.kind = shift"),
        (
            {"corruption.kind": fedsim.sweep(["flipping", "exclude"]), "corruption.start_round": 2},
            "if clients are excluded with corruption.start_round",
        ),
        (
            {"corruption.kind": "exclude", "corruption.end_round": 2},
            "if clients are excluded with corruption.start_round",
        ),
        (
            {"server.aggregator": "fedavg", "server.weighting": "norm_clipping"},
            "server.weighting = norm_clipping, whose weights alone are used",
        ),
        ({"server.pre_aggregators": ["clipping"], "attack.kind": "gaussian", "attack.fraction": 0.2}, None),
        ({"corruption.kind": "exclude", "norm_clipping.delta": None, "corruption.start_round": 2}, None),
    ],
)
def test_no_epsilon_where_a_client_changes_more_than_its_own_update(changes, reason):
    Path("own.py").write_text("import fedsim.aggregators\n\ndef mix():\n    return fedsim.aggregators.nnm()\n")
    noisy = {"model.name": "logistic", "server.aggregator": "norm_clipping", "norm_clipping.delta": 1e-5}
    plan = lambda: make_plan(
        fedsim.load(noisy | {"norm_clipping.noise_std": 1.0, "corruption.fraction": 0.2} | changes)
    )
    if reason is None:
        plan()
    else:
        with pytest.raises(ConfigError, match=rf"norm_clipping\.delta: must be left out (with )?{reason}"):
            plan()


def test_results_have_the_epsilon_of_each_round(tmp_path, monkeypatch):
    """Here of two runs that sample all clients; another rule's rows stay as they are."""
    names = ("epsilon", "epsilon_poisson")
    recorded = {"sampling_rate": [[1] * 3] * 2, "noise_multiplier": [[4] * 3] * 2, "delta": [[1e-3] * 3, [1e-5] * 3]}
    other = as_table("info", info_rows([2], 3, {"delta": [[0.1] * 3]}))
    rows = pl.concat([as_table("info", info_rows([0, 1], 3, recorded)), other])
    monkeypatch.setattr(RunFolder, "read", lambda self, kind, runs: rows)
    monkeypatch.setattr(RunFolder, "runs", lambda self: [])
    info = fedsim.Result(tmp_path).info
    shown = info.filter(pl.col("name") == "epsilon")
    assert shown.select("run", "round").rows() == [(run, round_) for run in (0, 1) for round_ in (1, 2, 3)]
    for name, orders, z in zip(names, (privacy.ORDERS, np.asarray(privacy.POISSON_ORDERS)), (4, 8), strict=True):
        expected = [epsilon(n * orders / (2 * z**2), delta, orders) for delta in (1e-3, 1e-5) for n in (1, 2, 3)]
        np.testing.assert_allclose(info.filter(name=name)["value"], expected, rtol=1e-6)
    assert_frame_equal(info.filter(~pl.col("name").is_in(names)), rows, check_row_order=False)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(FedsimError, match=r"^epsilon: needs dp-accounting .*pip install 'fedsim-jax\[privacy\]'$"):
        _ = fedsim.Result(tmp_path).info
