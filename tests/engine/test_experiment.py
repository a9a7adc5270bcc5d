"""Experiments end to end: groups, rows, and the same again."""

import pytest

from fedsim.config.toml import parse
from fedsim.engine import make_plan, run_plan
from fedsim.engine.families import group_runs
from tests.conftest import Seen
from tests.engine.test_store import SMALL

SWEEPS = """
[[sweep]]
server.aggregator = ["fedavg", "arfl"]
corruption.kind = "none"
arfl.lam = 1e4
seed = [0, 1]
[[sweep]]
server.aggregator = ["fedavg", "arfl"]
corruption.kind = "shuffling"
corruption.fraction = 0.5
seed = [0, 1]
"""


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse(SMALL + SWEEPS, {"server.num_rounds": 5, "engine.run_width": "auto"}))


@pytest.fixture(scope="module")
def seen():
    """By a callback, while `folder` is computed."""
    return Seen()


@pytest.fixture(scope="module")
def folder(plan, seen, tmp_path_factory):
    return run_plan(plan, tmp_path_factory.mktemp("runs") / "small", [seen])


def test_runs_share_images_unless_corruption_changes_them():
    runs = parse("[[sweep]]\ncorruption.fraction = 0.3\ncorruption.kind = ['noisy', 'flipping', 'shuffling']").runs()
    assert group_runs(runs) == [(0,), (1, 2)]


def test_hooks_are_called_in_order(seen, plan, folder):
    assert seen.calls == ["start", 0, 2, 4, 5, "end"] * 2
    assert [(start.after, start.num_completed, start.num_rounds) for start in seen.starts] == [
        (-1, 0, 40),
        (-1, 20, 40),
    ]
    assert [start.runs for start in seen.starts] == [group.runs for group in plan.groups]
    assert [evaluation.num_new for evaluation in seen.evaluations] == [0, 8, 8, 4] * 2
    assert [evaluation.num_completed for evaluation in seen.evaluations] == [0, 8, 16, 20, 20, 28, 36, 40]
    assert [evaluation.is_last for evaluation in seen.evaluations] == [False, False, False, True] * 2
    again = Seen()
    run_plan(plan, folder.path, [again])
    assert again.calls == []  # nothing is missing


def test_rows_of_rounds(folder, plan):
    rounds = folder.read("rounds")
    assert rounds.height == 8 * 4
    rows = rounds.to_dicts()
    assert [row["round"] for row in rows] == 8 * [0, 2, 4, 5]
    for row in rows:
        config = plan.runs[row["run"]]
        assert (row["aggregator"], row["seed"]) == (config.server.aggregator, config.seed)
        assert (row["corruption"], row["fraction"]) == (config.corruption.kind, config.corruption.fraction)
        assert row["lam"] == dict(config.settings).get("arfl.lam")
        assert (row["corrupted_weight"] is None) == (row["round"] == 0)
        assert 0 <= row["test_accuracy"] <= 1
        assert row["accuracy_p50"] is None  # no client has test examples
        assert not row["diverged"]
    assert all(row["corrupted_weight"] == 0 for row in rows if row["corruption"] == "none" and row["round"])


def test_client_rows_are_the_cohort_of_every_round_and_all_where_alpha_is_kept(folder, plan):
    table = folder.read("clients").to_dicts()
    arfl = {i for i, config in enumerate(plan.runs) if config.server.aggregator == "arfl"}
    for i in range(len(plan.runs)):
        for t in range(1, 6):
            rows = [r for r in table if r["run"] == i and r["round"] == t]
            cohort = [r for r in rows if r["weight"] is not None]
            evaluated = t in (2, 4, 5)
            assert len(cohort) == 4
            assert sum(r["weight"] for r in cohort) == pytest.approx(1, abs=1e-5)
            assert len(rows) == (6 if i in arfl and evaluated else 4)
            assert all((r["alpha"] is not None) == (i in arfl and evaluated) for r in rows)
            if i in arfl and evaluated:
                assert sum(r["alpha"] for r in rows) == pytest.approx(1, abs=1e-5)
    corrupted = {r["client_id"] for r in table if r["run"] == len(plan.runs) - 1 and r["corrupted"]}
    assert len(corrupted) == 3


def test_a_run_that_diverges_is_recorded_and_stops_nobody_else(tmp_path):
    text = """
    data.num_clients = 4
    mlp.hidden_sizes = [4]
    server = {cohort_size = 4, num_rounds = 4, eval_every = 2}
    [[sweep]]
    client.learning_rate = [0.1, 1e25]"""
    plan = make_plan(parse(text))
    assert len(plan.groups) == 1
    rows = run_plan(plan, tmp_path / "both").read("rounds").to_dicts()
    assert [row["diverged"] for row in rows] == [False, False, False, False, True, True]
    other = run_plan(make_plan(parse(text.replace("1e25", "0.2"))), tmp_path / "other")
    for mixed, single in zip(rows[:3], other.read("rounds").to_dicts()[:3], strict=True):
        assert mixed["test_loss"] == single["test_loss"]
