"""What is kept besides rows of rounds: `record.clients`, `record.losses` and `record.data`."""

import numpy as np
import pytest

from fedsim.config.toml import parse
from fedsim.engine import make_plan, run_plan

TEXT = """
[data]
num_clients = 6
partition = "dirichlet"
num_train = 240
[mlp]
hidden_sizes = [4]
[server]
aggregator = "fedavg"
cohort_size = 3
num_rounds = 4
eval_every = 2
[record]
data = true
[[sweep]]
corruption.kind = ["none", "shuffling", "exclude"]
corruption.fraction = 0.5
[[sweep]]
corruption.kind = "noisy"
corruption.clients = [1, 4]
"""
RUNS = ("none", "shuffling", "exclude", "noisy")


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse(TEXT))


@pytest.fixture(scope="module")
def folder(plan, tmp_path_factory):
    return run_plan(plan, tmp_path_factory.mktemp("runs") / "kept")


@pytest.mark.parametrize("run", range(4), ids=RUNS)
def test_data_that_are_kept_are_those_that_clients_trained_with(run, plan, folder):
    (dataset,) = plan.datasets.values()
    data, clean = folder.runs()[run].read_data(), dataset.train
    assert set(data) == set(clean._fields) - {"malicious"}  # no client is, in these runs
    assert all(data[name].dtype == getattr(clean, name).dtype for name in data)
    assert data["offsets"].tolist() == clean.offsets.tolist()
    rows_by_client = {r["client_id"]: r for r in folder.read("clients").to_dicts() if r["run"] == run}
    for client, (offset, count) in enumerate(zip(clean.offsets, clean.num_examples, strict=True)):
        rows = slice(offset, offset + count)
        is_corrupted = bool(data["corrupted"][client])
        assert client not in rows_by_client or rows_by_client[client]["corrupted"] == is_corrupted
        changed = {name for name in ("x", "y") if not np.array_equal(data[name][rows], getattr(clean, name)[rows])}
        assert changed <= ({"shuffling": {"y"}, "noisy": {"x"}}.get(RUNS[run], set()) if is_corrupted else set())
        assert sorted(data["y"][rows]) == sorted(clean.y[rows])
        assert data["num_examples"][client] == (0 if is_corrupted and RUNS[run] == "exclude" else count)
    assert data["corrupted"].nonzero()[0].tolist() == [1, 4] if RUNS[run] == "noisy" else True
    assert data["corrupted"].sum() == {"none": 0, "noisy": 2}.get(RUNS[run], 3)
    is_changed = not all(np.array_equal(data[name], getattr(clean, name)) for name in ("x", "y", "num_examples"))
    assert is_changed == (RUNS[run] != "none")
