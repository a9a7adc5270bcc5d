"""Differences of rules, seed by seed, with their intervals."""

import csv
import math

import numpy as np
import polars as pl
import pytest
import scipy.stats

from fedsim import report
from fedsim.errors import ConfigError
from fedsim.report.paired import find_rule, paired_rows, unpaired_notes
from tests.report.synthetic import GRID, SEEDS, check_latex, final, make_folder, run


def test_paired_intervals_are_those_of_the_paired_t_test(tmp_path):
    results = report.load(make_folder(tmp_path / "a", GRID))
    differences = report.differences(results)
    assert len(differences) == 6
    for d in differences:
        accuracies, arfl = (final(rule, d.setting.fraction) for rule in (d.setting.aggregator, "arfl"))
        interval = scipy.stats.ttest_rel(accuracies, arfl).confidence_interval(0.95)
        assert d.mean == pytest.approx((accuracies - arfl).mean())
        assert (d.mean - d.half_width, d.mean + d.half_width) == pytest.approx(tuple(interval))
    (table,) = report.paired_tables(results)
    assert "after Holm's correction for 6 comparisons" in table.subtitle
    assert [row.name for row in table.rows] == ["FedAvg", "RFA"]
    numbers = {
        (row.aggregator, fraction): number
        for row in table.rows
        for fraction, number in zip((0.0, 0.3, 0.5), row.entries, strict=True)
    }
    p = {place: scipy.stats.ttest_rel(final(*place), final("arfl", place[1])).pvalue for place in numbers}
    ordered = sorted(p, key=lambda place: p[place])  # Holm: the smallest first, until one is not significant
    significant = [p[place] <= 0.05 / (6 - position) for position, place in enumerate(ordered)]
    first = significant.index(False) if False in significant else len(significant)
    assert {place for place, number in numbers.items() if number.bold} == set(ordered[:first])
    assert "| -" in report.markdown([table])
    check_latex(report.latex([table]))


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        ((-1, -1), "fewer than 3 seeds"),
        ((-1, 4), "fewer than 3 seeds"),
        ((-1, -1, -1), "all differences are equal"),
        ((0, 0, 0, 0, 0), "all differences are equal"),
        ((-1, -1, -2), ""),
        ((5, 6, 5, 6, 5), ""),
    ],
)
def test_few_or_equal_differences_have_no_interval_no_test_and_no_bold(images, reason, tmp_path):
    """Accuracies are multiples of 1/359, as of digits; the family of Holm's correction has the tested pairs alone."""
    differences = {"rfa": images, "median": tuple(range(20, 20 + len(images)))}
    runs = [run(rule, 0.3, seed) for rule in ("arfl", *differences) for seed in range(len(images))]
    value = lambda run, t: (
        (300 + 7 * run["seed"] % 31 + differences.get(run["server.aggregator"], [0] * 9)[run["seed"]]) / 359
    )
    results = report.load(make_folder(tmp_path / "a", runs, value))
    rfa, median = (d for rule in differences for d in report.differences(results) if d.setting.aggregator == rule)
    rows = {row["aggregator"]: row for row in paired_rows(results, [rfa, median])}
    (table,) = report.paired_tables(results)
    numbers = {row.aggregator: row.entries[0] for row in table.rows}
    assert rows["rfa"]["difference_mean"] == pytest.approx(np.mean(images) / 359)  # 0 to 1, as in summary.csv
    note = f"No interval and no test, {reason}: " + ("all numbers." if len(images) < 3 else "RFA, Shuffling 30 %.")
    assert table.notes == ((note,) if reason else ())
    tested = [np.asarray(x) / 3.59 for x in differences.values() if len(x) > 2 and np.ptp(x) > 0]
    if not reason:
        p = [scipy.stats.ttest_1samp(differences, 0).pvalue for differences in tested]
        assert [rows[rule]["p"] for rule in rows] == pytest.approx(p)
        assert [rows[rule]["p_holm"] for rule in rows] == pytest.approx([max(p[0], 2 * p[1]), 2 * p[1]])
        return
    assert (rfa.p_value, rfa.half_width, numbers["rfa"].bold) == (None, None, False)
    assert [rows["rfa"][key] for key in ("p", "p_holm", "difference_low", "difference_high")] == [None] * 4
    if tested:
        assert rows["median"]["p"] == pytest.approx(scipy.stats.ttest_1samp(tested[0], 0).pvalue)
        assert rows["median"]["p_holm"] == rows["median"]["p"]  # a single test
        assert numbers["median"].bold


@pytest.mark.parametrize(("rule", "other"), [("ARFL", "FedAvg"), ("FedAvg", "ARFL")])
@pytest.mark.parametrize("failure", ["diverged", "skipped", "missing"])
def test_a_difference_with_a_failed_run_is_marked_and_never_bold(failure, rule, other, tmp_path):
    """A run that is skipped has a finite loss, so it has not diverged: no client has a weight at the end."""
    runs = [run(rule, 0.3, seed) for rule in ("arfl", "fedavg") for seed in range(4)]
    fails = lambda run: run["server.aggregator"] == rule.lower() and run["seed"] == 3
    lead = lambda run: 0.2 * (run["server.aggregator"] == rule.lower()) + run["seed"] ** 2 / 1000
    value = lambda run, t: math.nan if failure == "missing" and fails(run) else 0.5 + lead(run)
    is_last = (pl.col("aggregator") == rule.lower()) & (pl.col("seed") == 3) & (pl.col("round") == 20)
    skip = {"change": lambda rounds: rounds.with_columns(diverged=is_last)} if failure == "skipped" else {}
    diverged = lambda run: failure == "diverged" and fails(run)
    results = report.load(make_folder(tmp_path / "a", runs, value, diverged, **skip))
    (paired,), (accuracies,) = report.paired_tables(results), report.accuracy_tables(results)
    mark, why = ("‡", "runs in which no client had a weight at the end") if skip else ("†", "diverged runs")
    for table, row in ((paired, "FedAvg"), (accuracies, rule)):
        number = next(line.entries[0] for line in table.rows if line.name == row)
        assert (number.marks, number.bold) == (mark, False)
        assert f"{mark} {why}: {row}, Shuffling 30 %: 1 of 4." in table.notes
    assert next(line.entries[0] for line in accuracies.rows if line.name == other).bold


def test_paired_uses_common_seeds_and_any_reference(tmp_path):
    runs = [run("arfl", 0.5, s) for s in (1, 2, 3)] + [run("fedavg", 0.5, s) for s in (5, 3, 1)]
    runs += [run("rfa", 0.5, 2), run("rfa", 0.3, 2)]
    results = report.load(make_folder(tmp_path / "a", runs))
    fedavg, rfa = report.differences(results)  # nothing to compare with at 30 %
    assert fedavg.draws == ((0, 3), (0, 1))
    np.testing.assert_allclose(fedavg.values, final("fedavg", 0.5, (3, 1)) - final("arfl", 0.5, (3, 1)))
    assert rfa.half_width is None
    (arfl,) = report.differences(results, baseline="fedavg")
    assert arfl.mean == pytest.approx(-fedavg.mean)
    assert "| +" in report.markdown(report.paired_tables(results, baseline="fedavg"))
    with pytest.raises(ConfigError, match=r"--baseline: .* arfl, fedavg, rfa, got cfl"):
        report.differences(results, baseline="cfl")
    assert unpaired_notes(results) == []


def test_what_differs_in_rounds_has_no_difference_and_is_named(tmp_path):
    runs = [run("arfl", 0.5), run("fedavg", 0.5), run("rfa", 0.5) | {"server.num_rounds": 99}]
    results = report.load(make_folder(tmp_path / "a", runs))
    assert [d.setting.aggregator for d in report.differences(results)] == ["fedavg"]
    assert unpaired_notes(results) == [
        "no difference to ARFL, which has another server.num_rounds: RFA, server.num_rounds=99"
    ]


def test_runs_that_are_not_as_far_have_no_difference(tmp_path):
    runs = [run(rule, 0.5, seed) for rule in ("arfl", "fedavg", "rfa") for seed in SEEDS]
    cut = pl.col("aggregator").is_in(["fedavg", "rfa"]) | (pl.col("round") <= 10)
    folder = make_folder(tmp_path / "a", runs, is_complete=False, change=lambda rounds: rounds.filter(cut))
    results = report.load(folder)
    assert report.differences(results) == []
    assert unpaired_notes(results) == ["no difference to ARFL, which has another last evaluation: FedAvg; RFA"]
    assert len(report.differences(results, baseline="fedavg")) == 1


def test_a_setting_is_shown_up_to_what_all_its_runs_have(tmp_path):
    runs, cut = [run("arfl", 0.5, seed) for seed in (0, 1)], (pl.col("seed") == 0) | (pl.col("round") <= 10)
    change = lambda rounds: rounds.filter(cut)
    folder = make_folder(tmp_path / "a", runs, is_complete=False, change=change, alphas=lambda run: (5.0, 5.0))
    results = report.load(folder)
    assert results.settings[0].rounds == (0, 10)
    assert results.table["round"].max() == results.clients["round"].max() == 10


def test_rules_whose_runs_have_all_diverged_are_named(tmp_path):
    runs = [run(rule, 0.5, seed) for rule in ("arfl", "fedavg", "rfa") for seed in SEEDS]
    value = lambda run, t: math.nan if run["server.aggregator"] == "rfa" else 0.5
    results = report.load(make_folder(tmp_path / "a", runs, value))
    assert [d.setting.aggregator for d in report.differences(results)] == ["fedavg"]
    assert unpaired_notes(results) == ["no difference to ARFL, since all pairs of runs have diverged: RFA"]


def test_rules_with_other_seeds_are_named(tmp_path):
    seeds = {"arfl": (0, 1), "fedavg": (0, 1), "rfa": (2, 3)}
    results = report.load(make_folder(tmp_path / "a", [run(rule, 0.5, s) for rule in seeds for s in seeds[rule]]))
    assert unpaired_notes(results) == ["no difference to ARFL, which has other seeds: RFA"]
    (table,) = report.accuracy_tables(results)
    assert "over 2 seeds of one split, not everywhere the same; best" in table.subtitle


def test_a_shared_f_sets_no_rule_apart_that_takes_none(tmp_path):
    f = {"multi_krum": (4, 8), "trimmed_mean": (4, 8), "arfl": (None,), "fedavg": (None,)}
    runs = [
        run(rule, 0.5, seed, **{"server.num_byzantine": number})
        for rule, numbers in f.items()
        for number in numbers
        for seed in SEEDS
    ]
    results = report.load(make_folder(tmp_path / "a", runs))
    assert [d.setting.aggregator for d in report.differences(results)] == [
        "multi_krum", "multi_krum", "trimmed_mean", "trimmed_mean", "fedavg"
    ]  # fmt: skip
    assert unpaired_notes(results) == []
    of_equal_f = [d for d in report.differences(results, "multi_krum") if d.setting.aggregator == "trimmed_mean"]
    assert len(of_equal_f) == 2
    (table,) = report.paired_tables(results, "multi_krum")
    assert [row.name for row in table.rows if row.name.startswith("FedAvg")] == [
        f"FedAvg − Multi-Krum, server.num_byzantine={number}" for number in (4, 8)
    ]


def test_paired_names_the_reference_where_there_are_several(tmp_path, no_figures):
    runs = [run("fedavg", 0.5, s) for s in SEEDS]
    runs += [run("arfl", 0.5, s, **{"arfl.lam": lam}) for lam in (1.0, 10.0) for s in SEEDS]
    folder = make_folder(tmp_path / "a", runs)
    (table,) = report.paired_tables(report.load(folder))
    assert [row.name for row in table.rows] == ["FedAvg − ARFL, λ = 1 M", "FedAvg − ARFL, λ = 10 M"]
    report.write(report.load(folder), folder)
    lines = list(csv.DictReader((folder.path / "paired.csv").open()))
    assert [line["reference_lam"] for line in lines] == ["1", "10"]
    fedavg, arfl = final("fedavg", 0.5), final("arfl", 0.5, **{"arfl.lam": 10.0})
    low, high = scipy.stats.ttest_rel(fedavg, arfl).confidence_interval(0.95)
    assert [100 * float(lines[1][f"difference_{end}"]) for end in ("low", "high")] == pytest.approx(
        [low, high], rel=1e-4
    )


def test_a_weighting_belongs_to_the_rule(tmp_path):
    """Rules with and without ARFL's weights are rows of one scenario, and every pair with the baseline is shown."""
    rules, weightings = ("rfa", "median", "trimmed_mean"), (None, "arfl")
    shift = {
        (rule, weighting): 0.01 * i + 0.1 * bool(weighting) for i, rule in enumerate(rules) for weighting in weightings
    }
    runs = [
        run(rule, share, seed, **{"server.weighting": weighting})
        for rule, weighting in shift
        for share in (0.1, 0.2, 0.3)
        for seed in (0, 1)
    ]
    value = lambda run, t: 0.5 + shift[run["server.aggregator"], run["server.weighting"]]
    results = report.load(make_folder(tmp_path / "a", runs, value))
    names = dict(zip(rules, ("RFA", "Median", "Trimmed mean"), strict=True))
    name = lambda rule, weighting: names[rule] + (" with ARFL's weights" if weighting else "")
    (table,) = report.paired_tables(results, "rfa")
    expected = {
        f"{name(*rule)} − {name('rfa', baseline)}": 100 * (shift[rule] - shift["rfa", baseline])
        for rule in shift
        if rule[0] != "rfa"
        for baseline in weightings
    }
    assert {row.name: row.entries[0].mean for row in table.rows} == pytest.approx(expected)


def test_a_baseline_is_named_as_shown_or_as_configured(tmp_path):
    plugins = [run("fedavg") | {"server.aggregator": f"{file}.py:mean"} for file in "ab"]
    arfl = [run("arfl"), run("fedavg") | {"server.aggregator": "own.py:arfl"}]
    results = report.load(make_folder(tmp_path / "a", [*plugins, *arfl]))
    shown = {"a.py:mean": "mean (a.py)", "mean (b.py)": "mean (b.py)", "own.py:arfl": "arfl (own.py)", "arfl": "arfl"}
    assert {rule: find_rule(results, rule) for rule in shown} == shown
    (table,) = report.accuracy_tables(results)
    assert {row.name for row in table.rows} == {"mean (a.py)", "mean (b.py)", "arfl (own.py)", "ARFL"}
