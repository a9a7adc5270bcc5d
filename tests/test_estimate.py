"""What a plan says before it runs: memory, time, and groups that fit."""

import numpy as np
import pytest

from fedsim.config.toml import parse
from fedsim.engine import build, estimate, plan
from fedsim.engine.layout import Layout
from fedsim.report.names import duration

TEXT = """
[data]
num_clients = 8
[model]
hidden_sizes = [16]
[server]
cohort_size = 4
num_rounds = 10
[[sweep]]
corruption.kind = "noisy"
corruption.fraction = 0.5
seed = [0, 1, 2, 3, 4, 5, 6]
"""


def test_a_noisy_run_holds_its_own_images():
    config = parse(TEXT).runs()[0]
    dataset = build.dataset(config.data)
    clean = parse(TEXT, {"corruption.kind": "none"}).runs()[0]
    noisy, benign = estimate.run_bytes([config, clean], dataset)
    assert noisy - benign == estimate.COPIES * dataset.train.x.nbytes


def test_groups_are_cut_to_the_memory(monkeypatch):
    """With memory for three runs at a time, seven runs are three equal groups, each run once."""
    runs = parse(TEXT).runs()
    each, *_ = estimate.run_bytes(runs, build.dataset(runs[0].data))
    monkeypatch.setattr(plan.memory, "available", lambda: 2 * 3 * each)
    groups = plan.make_plan(parse(TEXT)).groups
    assert [len(group.runs) for group in groups] == [3, 2, 2]
    assert sorted(np.concatenate([group.runs for group in groups])) == list(range(7))
    monkeypatch.undo()
    assert len(plan.make_plan(parse(TEXT)).groups) == 1


def test_time_grows_with_runs_rounds_and_epochs(monkeypatch):
    """With a second for each example of a step: the slots of the rounds, the losses, and the evaluations, by hand."""
    monkeypatch.setattr(estimate, "_example_seconds", lambda *args: 1.0)
    configs = parse(TEXT, {"client.epochs": "3", "client.batch_size": "10"}).runs()
    dataset = build.dataset(configs[0].data)
    counts = np.unique(dataset.train.counts)
    slots = 4 * np.mean([-(-count // 10) * 10 for count in counts])
    by_round = 3 * slots + 4 * counts.mean() / 3
    by_hand = 10 * by_round + 3 * len(dataset.y_test) / 3 + dataset.train.counts.sum() / 3
    got = estimate.group_seconds(configs, dataset, Layout(client_width=1))
    assert got == pytest.approx(7 * by_hand, rel=0.02)  # clients have 179 or 180 examples
    assert estimate.group_seconds(configs, dataset, Layout(client_width=1, run_devices=2)) == pytest.approx(4 / 7 * got)


def test_a_step_is_timed():
    config = parse(TEXT).runs()[0]
    assert 0 < estimate.group_seconds([config], build.dataset(config.data), Layout(client_width=2)) < 100


@pytest.mark.parametrize(("seconds", "text"), [(41.2, "41 s"), (720, "12 min"), (12600, "3.5 h")])
def test_durations(seconds, text):
    assert duration(seconds) == text
