"""What a plan says before it runs: memory, time, and groups that fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedsim.config.toml import parse
from fedsim.engine import build, estimate, make_plan, memory
from fedsim.engine.dataset import load_dataset
from fedsim.engine.layout import Layout

TEXT = """
[data]
num_clients = 8
[mlp]
hidden_sizes = [16]
[server]
cohort_size = 4
num_rounds = 10
[[sweep]]
corruption.kind = "noisy"
corruption.fraction = 0.5
seed = [0, 1, 2, 3, 4, 5, 6]
"""


def run_bytes(overrides=None):
    """What a run without corruption holds, and what it carries from round to round, made for true."""
    config = parse(TEXT, {"corruption.kind": "none"} | (overrides or {})).runs()[0]
    dataset = load_dataset(config)
    (estimated,) = estimate.run_bytes([config], dataset)
    data = jax.tree.map(jnp.asarray, dataset.train)
    return estimated, build.simulation(config, dataset).init(jax.random.key(0), data, build.hparams(config))


@pytest.mark.parametrize(
    "overrides",
    [{"server.optimizer": "adam"}, {"client.algorithm": "scaffold"}, {"mlp.hidden_sizes": [40, 9]}],
    ids=["adam", "scaffold", "wider"],
)
def test_a_state_counts_with_all_that_it_carries(overrides):
    """Two moments of every parameter for Adam, a control of every client for SCAFFOLD: as the true states hold."""
    (plain, before), (more, after) = run_bytes(), run_bytes(overrides)
    true_bytes = lambda state: sum(leaf.nbytes for leaf in jax.tree.leaves(state._replace(key=())))
    params = memory.tree_bytes(before.variables.params)
    least = {"server.optimizer": 2 * params, "client.algorithm": 9 * params}.get(next(iter(overrides)), params)
    assert true_bytes(after) - true_bytes(before) >= least
    assert more - plain == estimate.NUM_COPIES * (true_bytes(after) - true_bytes(before))


def test_a_noisy_run_holds_its_own_images():
    config = parse(TEXT).runs()[0]
    dataset = load_dataset(config)
    clean = parse(TEXT, {"corruption.kind": "none"}).runs()[0]
    noisy, benign = estimate.run_bytes([config, clean], dataset)
    assert noisy - benign == estimate.NUM_COPIES * dataset.train.x.nbytes


def test_groups_are_cut_to_the_memory(monkeypatch):
    """With memory for three runs at a time, seven runs are three equal groups, each run once."""
    runs = parse(TEXT).runs()
    each, *_ = estimate.run_bytes(runs, load_dataset(runs[0]))
    monkeypatch.setattr(memory, "available", lambda: 2 * 3 * each)
    groups = make_plan(parse(TEXT)).groups
    assert [len(group.runs) for group in groups] == [3, 2, 2]
    assert sorted(np.concatenate([group.runs for group in groups])) == list(range(7))
    monkeypatch.undo()
    assert len(make_plan(parse(TEXT)).groups) == 1


def test_a_group_needs_at_least_what_its_runs_and_data_do():
    configs = parse(TEXT).runs()
    dataset = load_dataset(configs[0])
    one, two = (estimate.group_bytes(configs, dataset, Layout(run_devices=n)) for n in (1, 2))
    of_runs, of_data = sum(estimate.run_bytes(configs, dataset)), dataset.train.x.nbytes + dataset.x_test.nbytes
    assert one > of_runs + of_data
    assert two > one + of_data  # each device has a copy


def test_time_grows_with_runs_rounds_and_epochs(monkeypatch):
    """With a second for each example of a step."""
    monkeypatch.setattr(estimate, "_example_seconds", lambda *args: 1.0)

    def seconds(overrides=None, **layout):
        configs = parse(TEXT, {"client.batch_size": 1} | (overrides or {})).runs()
        return estimate.group_seconds(configs, load_dataset(configs[0]), Layout(**layout))

    dataset = load_dataset(parse(TEXT).runs()[0])
    cohort = 4 * dataset.train.num_examples.mean()  # clients have 179 or 180 examples, and batches of one waste nothing
    assert seconds({"client.epochs": 3}) - seconds() == pytest.approx(7 * 10 * 2 * cohort, rel=0.02)
    assert seconds() - seconds({"client.steps": 100}) == pytest.approx(7 * 10 * (cohort - 4 * 100), rel=0.02)
    before_rounds = seconds({"server.num_rounds": 0})
    one_evaluation = (seconds({"server.eval_every": 1}) - seconds({"server.eval_every": 10})) / 9
    assert seconds() - before_rounds == pytest.approx(7 * 10 * cohort * 4 / 3 + 2 * one_evaluation, rel=0.02)
    assert seconds(run_devices=2) == pytest.approx(4 / 7 * seconds())
    assert seconds(client_devices=2) < seconds()


def test_a_step_is_timed():
    config = parse(TEXT).runs()[0]
    assert 0 < estimate.group_seconds([config], load_dataset(config), Layout(client_width=2)) < 100
