"""fedsim against ByzFL, an independent implementation: equal results, or documented differences.

Not part of the default tests: `pip install fedsim-jax[oracle]`, then `pytest tests/oracle`. ByzFL computes in float64
here, on NumPy arrays. It aggregates gradients; an update is a negative gradient, which matters only for the sign of
ALIE.
"""

import numpy as np
import pytest
from scipy import stats

from fedsim import aggregators, attacks
from fedsim.attacks.search import geometric_grid
from tests.oracle.cohorts import KEY, aggregate, forge, pre_aggregate, ravel, report, updates

byzfl = pytest.importorskip("byzfl", reason="ByzFL is not installed: pip install fedsim-jax[oracle]")

SIZES = [(7, 0), (7, 2), (10, 3), (11, 4), (12, 1)]  # clients, f


def check_agreement(fedsim_rule, byzfl_rule, num_clients, atol=2e-6, **options):
    for seed in range(3):
        rows = updates(seed, num_clients)
        np.testing.assert_allclose(aggregate(fedsim_rule, rows, **options), byzfl_rule(rows.copy()), atol=atol)


# Rules


@pytest.mark.parametrize(("num_clients", "f"), SIZES)
@pytest.mark.parametrize(
    ("fedsim_rule", "byzfl_rule"),
    [
        (aggregators.trimmed_mean, byzfl.TrMean),
        (aggregators.meamed, byzfl.Meamed),
        (aggregators.monna, byzfl.MoNNA),
        (lambda num_byzantine: aggregators.krum(num_byzantine=num_byzantine, neighbors="n-f-1"), byzfl.Krum),
        (lambda num_byzantine: aggregators.multi_krum(num_byzantine=num_byzantine, neighbors="n-f-1"), byzfl.MultiKrum),
    ],
    ids=["trimmed_mean", "meamed", "monna", "krum", "multi_krum"],
)
def test_rules_with_f(fedsim_rule, byzfl_rule, num_clients, f):
    check_agreement(fedsim_rule(num_byzantine=f), byzfl_rule(f), num_clients)


@pytest.mark.parametrize(("num_clients", "f"), [(7, 0), (7, 2), (9, 3)])
def test_mda(num_clients, f):
    check_agreement(aggregators.mda(num_byzantine=f), byzfl.MDA(f), num_clients)


def draw_on_a_line(monkeypatch, num_clients):
    """Updates along one direction, from which ByzFL's power iteration starts, so that its single step is exact."""
    line = np.linspace(-1, 1, 12)
    monkeypatch.setattr(np.random, "randn", lambda size: line)
    return [updates(seed, num_clients)[:, :1] * line for seed in range(3)]


@pytest.mark.parametrize(("num_clients", "f"), [(7, 0), (7, 2), (9, 3)])
def test_smea_on_a_line(num_clients, f, monkeypatch):
    for rows in draw_on_a_line(monkeypatch, num_clients):
        np.testing.assert_allclose(aggregate(aggregators.smea(num_byzantine=f), rows), byzfl.SMEA(f)(rows), atol=1e-5)


@pytest.mark.parametrize("num_clients", [1, 2, 7, 10])
@pytest.mark.parametrize(
    ("fedsim_rule", "byzfl_rule"),
    [(aggregators.fedavg, byzfl.Average), (aggregators.median, byzfl.Median)],
    ids=["fedavg", "median"],
)
def test_rules_without_settings(fedsim_rule, byzfl_rule, num_clients):
    check_agreement(fedsim_rule(), byzfl_rule(), num_clients)


def test_geometric_medians_converge_to_the_same_point():
    check_agreement(aggregators.rfa(num_iters=200, eps=1e-6), byzfl.GeometricMedian(nu=1e-6, T=200), 9, atol=1e-4)


@pytest.mark.parametrize("num_iters", [1, 3])
def test_centered_clipping_over_rounds(num_iters):
    fedsim_rule, byzfl_rule = (
        aggregators.centered_clipping(tau=2.0, num_iters=num_iters),
        byzfl.CenteredClipping(L=num_iters, tau=2.0),
    )
    state = np.zeros(12, np.float32)
    for seed in range(3):
        rows = updates(seed, 9)
        state = aggregate(fedsim_rule, rows, state).astype(np.float32)
        np.testing.assert_allclose(state, byzfl_rule(rows), atol=1e-5)


# Pre-aggregators


@pytest.mark.parametrize(("num_clients", "f"), SIZES)
@pytest.mark.parametrize(
    ("fedsim_rule", "byzfl_rule"), [(aggregators.nnm, byzfl.NNM), (aggregators.arc, byzfl.ARC)], ids=["nnm", "arc"]
)
def test_pre_aggregators_with_f(fedsim_rule, byzfl_rule, num_clients, f):
    for seed in range(3):
        rows = updates(seed, num_clients)
        np.testing.assert_allclose(
            pre_aggregate(fedsim_rule(num_byzantine=f), rows), byzfl_rule(f)(rows.copy()), atol=5e-6
        )


def test_clipping():
    rows = updates(0, 9)
    actual = pre_aggregate(aggregators.clipping(threshold=4.0), rows)
    np.testing.assert_allclose(actual, byzfl.Clipping(4.0)(rows.copy()), atol=1e-6)
    assert not np.allclose(actual, rows)


@pytest.mark.parametrize("size", [1, 3, 4])
def test_bucketing_in_the_same_order(size, monkeypatch):
    """9 clients in buckets of 4: ByzFL's incomplete bucket is also the mean of its vectors."""
    rows, sent = updates(0, 9), report(updates(0, 9))
    after = aggregators.bucketing(size=size)(sent, KEY)
    order = [client for bucket in np.asarray(after.mixing) for client in np.flatnonzero(bucket)]
    monkeypatch.setattr(np.random, "permutation", lambda vectors: vectors[order])
    np.testing.assert_allclose(ravel(after.updates, len(after.valid)), byzfl.Bucketing(size)(rows), atol=1e-6)


# Attacks


@pytest.mark.parametrize("tau", [0.1, 2.0])
def test_ipm(tau):
    honest = updates(0, 7)
    expected = byzfl.InnerProductManipulation(tau)(honest)
    np.testing.assert_allclose(forge(attacks.ipm(tau=tau), honest), expected[None], atol=1e-6)


def test_alie_of_gradients():
    """ByzFL adds to gradients, minus the updates, and divides by h - 1."""
    honest = updates(0, 7)
    expected = -byzfl.ALittleIsEnough(1.5)(-honest)
    actual = forge(attacks.alie(z=1.5, sign="minus", deviation="sample"), honest)
    np.testing.assert_allclose(actual, expected[None], atol=2e-6)


def test_sign_flip_of_one_client():
    """ByzFL flips the mean of the given updates: sign_flip for a single client, ipm with tau = 1 for all clients."""
    honest = updates(0, 7)
    actual = forge(attacks.sign_flip(), honest)  # the malicious client's update is the first honest one
    np.testing.assert_allclose(actual, byzfl.SignFlipping()(honest[:1])[None], atol=1e-6)
    np.testing.assert_allclose(forge(attacks.ipm(tau=1.0), honest), byzfl.SignFlipping()(honest)[None], atol=1e-6)


@pytest.mark.parametrize("client", [0, 3])
def test_mimic_of_a_given_client(client):
    honest = updates(0, 7)
    actual = forge(attacks.mimic(target="fixed", client_id=client), honest)
    np.testing.assert_allclose(actual, byzfl.Mimic(client)(honest)[None])


def test_inf():
    honest = updates(0, 7)
    np.testing.assert_array_equal(forge(attacks.inf(), honest), byzfl.Inf()(honest)[None])


def test_gaussian_has_the_same_distribution():
    honest = np.zeros((3, 20_000))
    actual = forge(attacks.gaussian(std=3.0), honest, num_forged=2)
    np.random.seed(0)  # noqa: NPY002
    expected = byzfl.Gaussian(mu=0.0, sigma=3.0)(honest)
    for update in actual:
        assert stats.ks_2samp(update, expected).pvalue > 1e-4
    assert abs(np.corrcoef(*actual)[0, 1]) < 0.04  # 5 standard errors


RULES = {
    "median": (aggregators.median(), byzfl.Median()),
    "trimmed_mean": (aggregators.trimmed_mean(num_byzantine=2), byzfl.TrMean(2)),
    "multi_krum": (aggregators.multi_krum(num_byzantine=2, neighbors="n-f-1"), byzfl.MultiKrum(2)),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("make", "byzfl_attack", "on_gradients"),
    [
        (attacks.optimal_ipm, byzfl.Optimal_InnerProductManipulation, 1),
        (lambda **s: attacks.optimal_alie(sign="minus", deviation="sample", **s), byzfl.Optimal_ALittleIsEnough, -1),
    ],
    ids=["optimal_ipm", "optimal_alie"],
)
def test_best_strength_is_the_most_harmful_one_in_byzfl(rule, make, byzfl_attack, on_gradients):
    """Among fedsim's strengths; ByzFL's search finds no strength that is much more harmful."""
    (fedsim_rule, judge), honest = RULES[rule], updates(0, 8)
    attack = make(min_strength=0.05, max_strength=40.0, num_strengths=200)
    sent = on_gradients * forge(attack, honest, num_forged=2, rule=fedsim_rule)
    search, vectors = byzfl_attack(agg=judge, pre_agg_list=[], f=2), on_gradients * honest
    harm = [search._evaluate(vectors, vectors.mean(axis=0), float(s)) for s in geometric_grid(0.05, 40.0, 200)]
    harm_of = lambda forged: np.linalg.norm(judge(np.concatenate([vectors, [forged, forged]])) - vectors.mean(axis=0))
    assert harm_of(sent[0]) == pytest.approx(max(harm), rel=1e-5)
    assert harm_of(sent[0]) >= 0.97 * harm_of(search(vectors))


# Documented differences


def count_differences(fedsim_rule, byzfl_rule, seeds=range(10), num_clients=9) -> int:
    """The number of random cohorts for which the results differ."""
    cohorts = [updates(seed, num_clients) for seed in seeds]
    return sum(not np.allclose(aggregate(fedsim_rule, rows), byzfl_rule(rows), atol=1e-4) for rows in cohorts)


def test_krum_uses_one_neighbor_less_than_byzfl():
    assert count_differences(aggregators.krum(num_byzantine=3), byzfl.Krum(3)) > 0
    assert count_differences(aggregators.krum(num_byzantine=3, neighbors="n-f-1"), byzfl.Krum(3)) == 0
    assert (
        count_differences(aggregators.krum(num_byzantine=2), byzfl.Krum(3)) == 0
    )  # so its f is one more than the paper's


def test_geometric_medians_differ_in_their_start():
    """ByzFL's starts at zero, as fedsim's does on request."""
    rows = updates(0, 9)
    for num_iters in (1, 4):
        byzfls = byzfl.GeometricMedian(nu=1e-5, T=num_iters)(rows)
        rfa_from = lambda start, n=num_iters: aggregate(aggregators.rfa(num_iters=n, eps=1e-5, start=start), rows)
        np.testing.assert_allclose(rfa_from("zero"), byzfls, atol=1e-5)
        assert not np.allclose(rfa_from("mean"), byzfls, atol=1e-2)
    far = rows + 100.0  # the distance to zero is all that ByzFL's first step sees
    np.testing.assert_allclose(byzfl.GeometricMedian(T=1)(far), far.mean(axis=0), atol=0.1)
    moved = aggregate(aggregators.rfa(), far) - 100.0
    np.testing.assert_allclose(moved, aggregate(aggregators.rfa(), rows), atol=1e-3)


def test_multi_krum_differs_in_its_default_weighting():
    rows = updates(0, 9)
    sent = report(rows)._replace(num_examples=np.arange(1, 10))
    byzfls = byzfl.MultiKrum(2)(rows)
    multi_krum_with = lambda weighting: aggregators.multi_krum(num_byzantine=2, neighbors="n-f-1", weighting=weighting)
    np.testing.assert_allclose(ravel(multi_krum_with("equal").aggregate((), sent, KEY)[0].update), byzfls, atol=1e-6)
    assert not np.allclose(ravel(multi_krum_with("examples").aggregate((), sent, KEY)[0].update), byzfls, atol=1e-3)


def test_alie_differs_in_its_default_sign():
    """fedsim's default is on the other side of the mean update, and nearer by sqrt((h - 1) / h)."""
    honest = updates(0, 7)
    actual, expected = forge(attacks.alie(z=1.5), honest)[0], -byzfl.ALittleIsEnough(1.5)(-honest)
    mean = honest.mean(axis=0)
    np.testing.assert_allclose(actual - mean, -np.sqrt(6 / 7) * (expected - mean), atol=5e-6)


def test_nnm_differs_for_f_above_half():
    rows = updates(0, 9)
    with pytest.raises(ValueError, match=r"^num_byzantine: 8 of a cohort of 9; the rule needs 2 f < K, so at most 4$"):
        pre_aggregate(aggregators.nnm(num_byzantine=8), rows)
    np.testing.assert_allclose(byzfl.NNM(8)(rows), rows)
