"""Tasks without an accuracy: reports show the test loss, and lower is better."""

import csv
import math

import numpy as np
import pytest
import scipy.stats

from fedsim import report
from fedsim.report.paired import unpaired_notes
from tests.report.synthetic import GRID, RULES, SEEDS, check_latex, make_folder, run, synthetic_accuracy

NO_ACCURACY = lambda run, t: np.nan


def squared_error(run, t):
    return 1e-3 / synthetic_accuracy(run, t)


def final(rule, fraction):
    """By seed."""
    return np.asarray([squared_error(run(rule, fraction, seed), 20) for seed in SEEDS])


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path / "a", GRID, NO_ACCURACY, loss=squared_error)


def test_table_has_the_test_loss(folder):
    (table,) = report.accuracy_tables(report.load(folder))
    assert table.title == "Test loss after 20 rounds"
    for row in table.rows:
        for fraction, number in zip((0.0, 0.3, 0.5), row.entries, strict=True):
            assert number.mean == pytest.approx(final(row.aggregator, fraction).mean())
            shown = {rule: round(final(rule, fraction).mean(), table.digits) for rule in RULES}
            assert number.bold == (shown[row.aggregator] == min(shown.values()) < max(shown.values()))
    check_latex(report.latex([table]))
    assert f"{final('fedavg', 0.5).mean():.4f} ±" in report.markdown([table])


def test_summary_and_paired_files(folder, no_figures):
    report.write(report.load(folder), folder)
    first, *_ = csv.DictReader((folder.path / "summary.csv").open())
    assert (first["aggregator"], first["fraction"]) == ("arfl", "0")
    assert float(first["final_loss_mean"]) == pytest.approx(final("arfl", 0.0).mean(), rel=1e-5)
    assert float(first["final_loss_std"]) == pytest.approx(np.std(final("arfl", 0.0), ddof=1), rel=1e-5)
    assert not any("final_accuracy" in name for name in first)
    for line in csv.DictReader((folder.path / "paired.csv").open()):
        losses, arfl = (final(rule, float(line["fraction"])) for rule in (line["aggregator"], "arfl"))
        low, high = scipy.stats.ttest_rel(losses, arfl).confidence_interval(0.95)
        bounds = float(line["difference_low"]), float(line["difference_high"])
        assert bounds == pytest.approx((low, high), rel=1e-4)
    (table,) = report.paired_tables(report.load(folder))
    assert table.title == "Difference to ARFL in test loss after 20 rounds"


def test_figures(folder):
    drawn = report.figures(report.load(folder))
    assert set(drawn) == {"loss", "corrupted_weight", "loss_over_fraction"}
    assert drawn["loss"].axes[0].get_ylabel() == "Test loss"
    (panel,) = drawn["loss_over_fraction"].axes
    assert panel.get_ylabel() == "Test loss\nafter 20 rounds"
    np.testing.assert_allclose(panel.lines[2].get_ydata(), [final("arfl", f).mean() for f in (0, 0.3, 0.5)])


def test_each_data_set_has_its_metric_in_mixed_reports(tmp_path, folder):
    other = make_folder(tmp_path / "b", [run(rule, 0.3, **{"data.name": "cifar10"}) for rule in RULES])
    results = report.load(other, folder)
    titles = [table.title for table in report.accuracy_tables(results)]
    assert titles == ["Test accuracy (%) after 20 rounds", "Test loss after 20 rounds"]
    rows = {(row["data"], row["aggregator"], row["fraction"]): row for row in report.summary(results)}
    with_accuracy, with_loss = rows["cifar10", "rfa", 0.3], rows["digits", "rfa", 0.3]
    assert with_accuracy["final_loss_mean"] is None
    assert with_accuracy["final_accuracy_mean"] == pytest.approx(synthetic_accuracy(run("rfa", 0.3), 20))
    assert with_loss["final_accuracy_mean"] is None
    assert with_loss["final_loss_mean"] == pytest.approx(final("rfa", 0.3).mean())
    drawn = report.figures(results)
    assert [panel.get_title() for panel in drawn["accuracy"].axes] == ["Shuffling 30 %"]
    assert len(drawn["loss"].axes) == 4


def test_classes_and_numbers_of_one_table_have_a_metric_each(tmp_path):
    labels = {"class": 0.5, "net $_$": math.nan, "gross $^$": math.nan}  # dollars are no formula in figures
    keys = {"data.name": "table", "table.path": "houses.csv"}
    runs = [run(rule, 0.3, s, **keys, **{"table.label": label}) for label in labels for rule in RULES for s in SEEDS]
    folder = make_folder(tmp_path / "b", runs, lambda run, t: labels[run["table.label"]], loss=squared_error)
    results = report.load(folder)
    shown = [(table.title, len(table.columns)) for table in report.accuracy_tables(results)]
    assert shown == [("Test accuracy (%) after 20 rounds", 1), ("Test loss after 20 rounds", 2)]
    assert [len(table.columns) for table in report.paired_tables(results)] == [1, 2]
    assert unpaired_notes(results) == []
    paths = report.write(results, tmp_path / "c")
    assert {"accuracy.png", "loss.png"} <= {path.name for path in paths}


def test_diverged(tmp_path):
    ruined = [run("fedavg", 0.5, seed) for seed in SEEDS]
    folder = make_folder(tmp_path / "b", GRID, NO_ACCURACY, ruined.__contains__, loss=squared_error)
    results = report.load(folder)
    assert "loss" in report.figures(results)
    (table,) = report.accuracy_tables(results)
    (fedavg,) = (row for row in table.rows if row.aggregator == "fedavg")
    assert np.isnan(fedavg.entries[2].mean)
    assert not fedavg.entries[2].bold
    assert table.notes == ("† diverged runs: FedAvg, Shuffling 50 %: 4 of 4.",)
    counts = {(row["aggregator"], row["fraction"]): row["num_diverged"] for row in report.summary(results)}
    assert counts == dict.fromkeys(counts, 0) | {("fedavg", 0.5): 4}
    assert "| nan† |" in report.markdown([table])
    assert sum(row.entries[2].bold for row in table.rows) == 1
