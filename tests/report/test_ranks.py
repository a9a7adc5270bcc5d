"""Ranks of rules over scenarios: Friedman's test, Nemenyi's difference, and their figure."""

import csv

import numpy as np
import pytest
import scipy.stats

from fedsim import report
from fedsim.report import style
from fedsim.report.rank_plot import plot_ranks, rank_groups
from fedsim.report.ranks import Ranks, rank_rows
from tests.report.synthetic import SEEDS, make_folder, run, synthetic_accuracy

RULES, SHARES = ("fedavg", "median", "rfa", "arfl"), (0.0, 0.1, 0.2, 0.3)
RUNS = [run(rule, share, seed) for rule in RULES for share in SHARES for seed in SEEDS]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return report.read(make_folder(tmp_path_factory.mktemp("ranks") / "a", [*RUNS, run("rfa", 0.5)]))


def test_mean_ranks_and_their_test(results):
    result = report.ranks(results)
    assert result.rows == ("FedAvg", "RFA", "Median", "ARFL") or set(result.rows) == {"FedAvg", "RFA", "Median", "ARFL"}
    rule_of = {"FedAvg": "fedavg", "RFA": "rfa", "Median": "median", "ARFL": "arfl"}
    rules = [rule_of[row] for row in result.rows]
    means = np.asarray(
        [[np.mean([synthetic_accuracy(run(r, s, seed), 20) for seed in SEEDS]) for r in rules] for s in SHARES]
    )
    beaten = (means[:, None, :] > means[:, :, None]).sum(axis=2) + (means[:, None, :] == means[:, :, None]).sum(
        axis=2
    ) / 2
    np.testing.assert_allclose(result.scenario_ranks, beaten + 0.5)
    assert result.friedman == pytest.approx(tuple(scipy.stats.friedmanchisquare(*means.T)))
    assert result.num_left_out == 1
    assert len(result.seed_ranks) == len(SHARES) * len(SEEDS)
    np.testing.assert_allclose(result.seed_ranks.sum(axis=1), 1 + 2 + 3 + 4)
    rows = rank_rows(result)
    assert [row["mean_rank"] for row in rows] == sorted(result.mean)


@pytest.mark.parametrize(("number", "q"), [(3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_matches_the_papers_table(number, q):
    """Demsar 2006, Table 5 (a), alpha 0.05."""
    result = Ranks(
        tuple(map(str, range(number))), np.tile(np.arange(1.0, number + 1), (14, 1)), np.zeros((0, number)), 0
    )
    assert result.critical_difference == pytest.approx(q * np.sqrt(number * (number + 1) / (6 * 14)), rel=1e-3)


def test_rules_that_always_tie_are_not_tested():
    result = Ranks(("a", "b", "c"), np.full((5, 3), 2.0), np.zeros((0, 3)), 0)
    assert np.isnan(result.friedman).all()


def test_groups_are_maximal_sets_without_a_significant_difference():
    rng = np.random.default_rng(0)
    for _ in range(50):
        mean, difference = np.sort(rng.uniform(1, 8, 7)), rng.uniform(0.2, 4)
        spans = [(i, j) for i in range(7) for j in range(i + 1, 7) if mean[j] - mean[i] <= difference]
        inside = lambda a, b: b[0] <= a[0] and a[1] <= b[1] and a != b
        assert rank_groups(mean, difference) == [a for a in spans if not any(inside(a, b) for b in spans)]


def test_files_and_figure(results, tmp_path, no_figures):
    folder = make_folder(tmp_path / "a", RUNS)
    report.make(folder)
    lines = list(csv.DictReader((folder.path / "ranks.csv").open()))
    assert [float(line["mean_rank"]) for line in lines] == pytest.approx(sorted(report.ranks(results).mean))
    with style.context():
        (panel,) = plot_ranks(report.ranks(results)).axes
    assert [text.get_text() for text in panel.texts] == [f"{rank:.2f}" for rank in sorted(report.ranks(results).mean)]


def test_two_rules_or_two_scenarios_are_not_ranked(tmp_path):
    few = [run for run in RUNS if run["server.aggregator"] in ("fedavg", "rfa")]
    assert report.ranks(report.read(make_folder(tmp_path / "a", few))) is None
    few = [run for run in RUNS if run["corruption.fraction"] in (0.1, 0.2)]
    assert report.ranks(report.read(make_folder(tmp_path / "b", few))) is None


def test_other_settings_are_scenarios_and_pre_aggregators_rules(tmp_path):
    keys = [{"client.epochs": epochs} for epochs in (1, 2, 3)]
    runs = [run(rule, 0.3, **settings) for rule in ("fedavg", "rfa") for settings in keys]
    runs += [run("rfa", 0.3, **settings, **{"server.pre_aggregators": ("nnm",)}) for settings in keys]
    result = report.ranks(report.read(make_folder(tmp_path / "a", runs)))
    assert result.scenario_ranks.shape == (3, 3)
    assert any("nnm" in row for row in result.rows)
