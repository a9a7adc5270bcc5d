"""Runs that are stopped alone, in a group that trains on: their rows end, and their models stay as they are."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import fedsim
from fedsim import report
from fedsim.config.sections import ServerConfig
from fedsim.engine import make_plan, run_plan
from fedsim.engine.stopping import Stopping
from fedsim.errors import ConfigError
from fedsim.report.final import Final
from fedsim.report.load import load
from fedsim.runs.folder import RunFolder
from tests.conftest import check_equal
from tests.engine.test_store import compute
from tests.engine.test_validation import measure
from tests.report import synthetic

TABLES = {
    "data": {"num_clients": 8, "num_train": 200, "num_test": 60, "validation_fraction": 0.2},
    "mlp": {"hidden_sizes": [4]},
    "client": {"batch_size": 8, "learning_rate": 0.3},
    "server": {"aggregator": "fedavg", "cohort_size": 3, "num_rounds": 12, "eval_every": 1},
    "engine": {"run_width": 2, "client_width": 3},
    "record": {"models": True},
    "seed": fedsim.sweep([0, 1, 2]),
}
PATIENCE = 3


def plan_of(patience=PATIENCE, **changes):
    return make_plan(fedsim.load(TABLES, server__patience=patience, **changes))


def stop_round(values: list[float], patience: int) -> int:
    """The evaluation after which a run is stopped, counted by hand."""
    for last in range(len(values)):
        best = max(range(last + 1), key=lambda i: (values[i], -i))
        if last - best >= patience:
            return last
    return len(values) - 1


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> RunFolder:
    return run_plan(plan_of(), tmp_path_factory.mktemp("runs") / "stopped")


def test_rows_end_where_the_patience_does(stopped, tmp_path):
    ends, whole = [], run_plan(plan_of(0), tmp_path / "whole")
    for seed in range(3):
        rows, all_rows = (
            folder.read("rounds").filter(pl.col("seed") == seed).drop("run") for folder in (stopped, whole)
        )
        ends.append(stop_round(all_rows["validation_accuracy"].to_list(), PATIENCE))
        assert rows["round"].to_list() == list(range(ends[-1] + 1))
        assert_frame_equal(rows, all_rows.head(ends[-1] + 1), rel_tol=1e-4)
    assert len(set(ends)) > 1  # some train on while others of their batch are stopped
    clients = stopped.read("clients").group_by("run").agg(pl.col("round").max()).sort("run")
    assert clients["round"].to_list() == ends


def test_models_are_those_of_the_round_in_which_a_run_was_stopped(stopped):
    (dataset,) = plan_of().datasets.values()
    for run in stopped.runs():
        last = stopped.read("rounds", [run]).row(-1, named=True)
        measured = measure(run.read_model(), dataset.x_test, dataset.y_test)
        assert (last["test_accuracy"], last["test_loss"]) == pytest.approx(measured, rel=1e-4)


def test_an_interrupted_group_resumes(stopped, tmp_path):
    """After some runs are stopped, while others wait for their patience: all that counts is in the rows."""
    compute(plan_of(), tmp_path / "cut", calls=9)
    assert compute(plan_of(), tmp_path / "cut").resumed == [8]
    check_equal(RunFolder(tmp_path / "cut"), stopped)


def test_data_on_the_host(stopped, tmp_path):
    host = run_plan(plan_of(data__placement="host"), tmp_path / "host")
    check_equal(host, stopped)


def test_a_group_ends_when_all_its_runs_are_stopped(tmp_path):
    """Clients that report no finite update are left out, so the model stays, and no client has a weight."""
    changes = {"client__learning_rate": 1e30, "server__stop_diverged": True, "record__final_states": True}
    folder = run_plan(plan_of(0, **changes), tmp_path / "diverged")
    assert folder.read("rounds")["round"].max() < 4
    before = sorted(Path(tmp_path).rglob("*.parquet"))
    observer = compute(plan_of(0, **changes, server__num_rounds=20), tmp_path / "diverged")
    assert sorted(Path(tmp_path).rglob("*.parquet")) == before
    assert observer.num_rounds == 0


def test_reports_hold_the_last_row(stopped):
    table = load(stopped, final=Final("mean", 3)).table
    assert table.group_by("run").agg(pl.col("round").max())["round"].to_list() == [12] * 3
    assert load(stopped).notes == (
        "Stopped early, after 3 to 10 rounds: 3 runs, whose last numbers count for later rounds.",
    )
    for run in range(3):
        rows, end = table.filter(pl.col("run") == run), stopped.read("rounds").filter(seed=run)["round"].max()
        assert rows.filter(pl.col("round") >= end)["test_loss"].n_unique() == 1


def test_runs_that_are_to_get_more_rounds_are_not_called_stopped(tmp_path):
    folder = run_plan(plan_of(50, server__num_rounds=4), tmp_path / "short")
    more = load(folder, config=plan_of(50, server__num_rounds=8).experiment)
    assert more.table["round"].max() == 4
    assert not any("Stopped" in note for note in more.notes)


def test_an_extension_that_is_interrupted_leaves_the_report_as_it_was(tmp_path):
    changes = {"record__models": False, "record__final_states": True}
    short = plan_of(7, **changes)
    before = load(run_plan(short, tmp_path / "run"), config=short.experiment)
    assert any("Stopped early" in note for note in before.notes)
    compute(plan_of(7, **changes, server__num_rounds=20), tmp_path / "run", calls=2)
    after = load(RunFolder(tmp_path / "run"), config=short.experiment)
    assert (after.notes, after.table.to_dicts()) == (before.notes, before.table.to_dicts())


def test_patience_with_regressions_is_for_the_loss():
    stopping = Stopping(ServerConfig(patience=2), 1)
    for loss, is_active in ((3.0, True), (2.0, True), (1.0, True), (0.5, True), (0.6, True), (0.7, False)):
        columns = {"validation_accuracy": [math.nan], "validation_loss": [loss], "diverged": [False]}
        stopping.observe(columns, np.arange(1))
        assert stopping.is_active.all() == is_active


def test_patience_needs_validation_data():
    with pytest.raises(ConfigError, match=r"server\.patience: needs validation data; set data\.validation_fraction"):
        plan_of(data__validation_fraction=0.0)


def test_rows_that_are_held_have_no_rounds_beyond_f(tmp_path):
    keys = {"server.patience": 1, "server.eval_every": 10, "data.validation_fraction": 0.1}
    runs = [synthetic.run("krum", 0.5, seed, **keys) for seed in (0, 1)]
    rounds = [
        {"run": n, "round": t, "test_accuracy": 0.5, "test_loss": 1.0, "byzantine_excess": 0.5 if t else None}
        for n, end in enumerate((10, 20))
        for t in range(0, end + 1, 10)
    ]
    table = report.load(synthetic.write_folder(tmp_path / "a", runs, {"rounds": rounds})).table
    assert table.filter(run=0)["byzantine_excess"].to_list() == [None, 0.5, None]
