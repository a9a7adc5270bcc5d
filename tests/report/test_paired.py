"""Differences of rules, seed by seed, with their intervals."""

import csv

import numpy as np
import pytest
import scipy.stats

from fedsim import report
from fedsim.errors import ConfigError
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
