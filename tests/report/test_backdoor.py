"""The success of backdoors in tables, summaries and figures, which omit it for runs without backdoors."""

import polars as pl
import pytest

from fedsim import report
from tests.report.synthetic import make_folder, run

RUNS = [run(rule, 0.3, seed, "backdoor") for rule in ("arfl", "fedavg") for seed in (0, 1)] + [run("fedavg", 0.5)]
SUCCESS = {0: 0.1, 1: 0.3, 2: 0.8, 3: 1.0, 4: None}  # after the last round of each run; half of it in earlier rounds


@pytest.fixture
def folder(tmp_path):
    def change(rounds):
        last = pl.col("run").replace_strict(SUCCESS, return_dtype=pl.Float64)
        return rounds.with_columns(backdoor_success=pl.when(pl.col("round") == 20).then(last).otherwise(last / 2))

    return make_folder(tmp_path / "a", RUNS, change=change)


def test_attack_success_has_a_separate_table_with_the_lowest_in_bold(folder):
    accuracy, success = report.accuracy_tables(report.load(folder))
    assert accuracy.title == "Test accuracy (%) after 20 rounds"
    assert success.title == "Backdoor success (%) after 20 rounds"
    assert [column.label for column in success.columns] == ["Backdoor 30 %"]
    numbers = {row.name: row.entries[0] for row in success.rows}
    assert {name: number.mean for name, number in numbers.items()} == pytest.approx({"ARFL": 20, "FedAvg": 90})
    assert {name: number.bold for name, number in numbers.items()} == {"ARFL": True, "FedAvg": False}


def test_summary_and_figure(folder):
    results = report.load(folder)
    rows = {(row["aggregator"], row["corruption"]): row for row in report.summary(results)}
    assert rows["fedavg", "backdoor"]["final_backdoor_success_mean"] == pytest.approx(0.9)
    assert rows["fedavg", "shuffling"]["final_backdoor_success_mean"] is None
    assert report.figures(results)["backdoor_success"].axes[0].get_ylabel() == "Backdoor success (%)"


def test_folders_without_the_column_have_no_attack_success(tmp_path):
    results = report.load(make_folder(tmp_path / "a", RUNS, change=lambda rounds: rounds.drop("backdoor_success")))
    assert results.with_backdoor == []
    assert len(report.accuracy_tables(results)) == 1
    assert not any("backdoor" in key for key in report.summary(results)[0])
    assert "backdoor_success" not in report.figures(results)
