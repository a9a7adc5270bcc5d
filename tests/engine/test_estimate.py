"""The bytes of runs before they run, and groups that fit."""

import jax
import numpy as np
import pytest

from fedsim.config.toml import parse
from fedsim.engine import build, devices, make_plan, memory
from fedsim.engine.data import load_dataset

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
    """What a run without corruption holds, and the shapes of what it carries from round to round."""
    config = parse(TEXT, {"corruption.kind": "none"} | (overrides or {})).runs()[0]
    dataset = load_dataset(config)
    (estimated,) = memory.run_bytes([config], dataset)
    init = build.simulation(config, dataset).init
    return estimated, jax.eval_shape(lambda data: init(jax.random.key(0), data, build.hparams(config)), dataset.train)


@pytest.mark.parametrize(
    "overrides",
    [{"server.optimizer": "adam"}, {"client.algorithm": "scaffold"}, {"mlp.hidden_sizes": [40, 9]}],
    ids=["adam", "scaffold", "wider"],
)
def test_a_state_counts_with_all_that_it_carries(overrides):
    """Two moments of every parameter for Adam, a control of every client for SCAFFOLD: as the true states hold."""
    (plain, before), (more, after) = run_bytes(), run_bytes(overrides)
    num_bytes = lambda leaf: leaf.size * leaf.dtype.itemsize
    true_bytes = lambda state: sum(map(num_bytes, jax.tree.leaves(state._replace(key=()))))
    params = memory.tree_bytes(before.variables.params)
    least = {"server.optimizer": 2 * params, "client.algorithm": 9 * params}.get(next(iter(overrides)), params)
    assert true_bytes(after) - true_bytes(before) >= least
    assert more - plain == memory.NUM_COPIES * (true_bytes(after) - true_bytes(before))


def test_a_noisy_run_holds_its_own_images():
    config = parse(TEXT).runs()[0]
    dataset = load_dataset(config)
    clean = parse(TEXT, {"corruption.kind": "none"}).runs()[0]
    noisy, benign = memory.run_bytes([config, clean], dataset)
    assert noisy - benign == memory.NUM_COPIES * dataset.train.x.nbytes


def test_groups_are_cut_to_the_memory(monkeypatch):
    """With memory for three runs at a time, seven runs are three equal groups, each run once."""
    runs = parse(TEXT).runs()
    each, *_ = memory.run_bytes(runs, load_dataset(runs[0]))
    monkeypatch.setattr(devices, "free_bytes", lambda: 2 * 3 * each)
    groups = make_plan(parse(TEXT)).groups
    assert [len(group.runs) for group in groups] == [3, 2, 2]
    assert sorted(np.concatenate([group.runs for group in groups])) == list(range(7))
    monkeypatch.undo()
    assert len(make_plan(parse(TEXT)).groups) == 1
