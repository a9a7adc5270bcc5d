"""Differences of rules, seed by seed, with their intervals."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.stats

from fedsim import report
from fedsim.errors import ConfigError
from fedsim.report.paired import find_rule
from tests.report.synthetic import GRID, SEEDS, check_latex, final, make_folder, run


def test_paired_intervals_are_those_of_the_paired_t_test(tmp_path):
    results = report.read(make_folder(tmp_path / "a", GRID))
    differences = report.differences(results)
    assert len(differences) == 6
    for d in differences:
        accuracies, arfl = (final(rule, d.setting.fraction) for rule in (d.setting.aggregator, "arfl"))
        interval = scipy.stats.ttest_rel(accuracies, arfl).confidence_interval(0.95)
        assert d.mean == pytest.approx((accuracies - arfl).mean())
        assert (d.mean - d.half_width, d.mean + d.half_width) == pytest.approx(tuple(interval))
    (table,) = report.paired_tables(results)
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


def test_paired_uses_common_seeds_and_any_reference(tmp_path):
    runs = [run("arfl", 0.5, s) for s in (1, 2, 3)] + [run("fedavg", 0.5, s) for s in (5, 3, 1)]
    runs += [run("rfa", 0.5, 2), run("rfa", 0.3, 2)]
    results = report.read(make_folder(tmp_path / "a", runs))
    fedavg, rfa = report.differences(results)  # nothing to compare with at 30 %
    assert fedavg.draws == ((0, 3), (0, 1))
    np.testing.assert_allclose(fedavg.values, final("fedavg", 0.5, (3, 1)) - final("arfl", 0.5, (3, 1)))
    assert rfa.half_width is None
    (arfl,) = report.differences(results, baseline="fedavg")
    assert arfl.mean == pytest.approx(-fedavg.mean)
    assert "| +" in report.markdown(report.paired_tables(results, baseline="fedavg"))
    with pytest.raises(ConfigError, match=r"--baseline: .* arfl, fedavg, rfa, got cfl"):
        report.differences(results, baseline="cfl")


def test_paired_names_the_reference_where_there_are_several(tmp_path, no_figures):
    runs = [run("fedavg", 0.5, s) for s in SEEDS]
    runs += [run("arfl", 0.5, s, **{"arfl.lam": lam}) for lam in (1.0, 10.0) for s in SEEDS]
    folder = make_folder(tmp_path / "a", runs)
    (table,) = report.paired_tables(report.read(folder))
    assert [row.name for row in table.rows] == ["FedAvg − ARFL, λ = 1 M", "FedAvg − ARFL, λ = 10 M"]
    report.make(folder)
    lines = list(csv.DictReader((folder.path / "paired.csv").open()))
    assert [line["reference_lam"] for line in lines] == ["1", "10"]
    fedavg, arfl = final("fedavg", 0.5), final("arfl", 0.5, **{"arfl.lam": 10.0})
    low, high = scipy.stats.ttest_rel(fedavg, arfl).confidence_interval(0.95)
    assert [float(lines[1][f"difference_{end}"]) for end in ("low", "high")] == pytest.approx([low, high], rel=1e-4)


def test_pairs_without_weights_are_marked_as_in_the_accuracy_table(tmp_path):
    """In two of ARFL's runs no client had a weight at the end; their losses are finite, so they have not diverged."""
    folder = make_folder(tmp_path / "a", [run(rule, 0.3, seed) for rule in ("arfl", "fedavg") for seed in range(3)])
    table = pq.read_table(folder.path / "rounds.parquet")
    skipped = [
        row["aggregator"] == "arfl" and row["round"] == 20 and row["seed"] < 2
        for row in table.select(["aggregator", "round", "seed"]).to_pylist()
    ]
    position = table.schema.get_field_index("diverged")
    pq.write_table(table.set_column(position, "diverged", pa.array(skipped)), folder.path / "rounds.parquet")
    results = report.read(folder)
    (accuracy,), (paired,) = report.accuracy_tables(results), report.paired_tables(results)
    assert accuracy.notes == ("‡ runs in which no client had a weight at the end: ARFL, Shuffling 30 %: 2 of 3.",)
    assert paired.notes == ("‡ runs in which no client had a weight at the end: FedAvg, Shuffling 30 %: 2 of 3.",)


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
    results = report.read(make_folder(tmp_path / "a", runs, value))
    names = dict(zip(rules, ("RFA", "Median", "Trimmed mean"), strict=True))
    name = lambda rule, weighting: names[rule] + (" with ARFL's weights" if weighting else "")
    ranks = report.ranks(results)
    assert ranks.scenario_ranks.shape == (3, 6)
    by_rank = [ranks.rows[position] for position in np.argsort(ranks.mean)]
    assert by_rank == [name(*rule) for rule in sorted(shift, key=lambda rule: -shift[rule])]
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
    results = report.read(make_folder(tmp_path / "a", [*plugins, *arfl]))
    shown = {"a.py:mean": "mean (a.py)", "mean (b.py)": "mean (b.py)", "own.py:arfl": "arfl (own.py)", "arfl": "arfl"}
    assert {rule: find_rule(results, rule) for rule in shown} == shown
    (table,) = report.accuracy_tables(results)
    assert {row.name for row in table.rows} == {"mean (a.py)", "mean (b.py)", "arfl (own.py)", "ARFL"}
