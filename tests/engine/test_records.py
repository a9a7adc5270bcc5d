"""The training data that `record.data` keeps."""

import numpy as np
import pytest

import fedsim
from fedsim.engine import run_plan
from tests.engine.test_store import plan_of

CORRUPTIONS = ("none", "shuffling", "exclude", "noisy")


@pytest.fixture(scope="module")
def plan():
    swept = {"corruption__kind": fedsim.sweep(CORRUPTIONS), "corruption__fraction": 0.5}
    return plan_of([0], **swept, record__data=True, server__num_rounds=2)


@pytest.fixture(scope="module")
def folder(plan, tmp_path_factory):
    return run_plan(plan, tmp_path_factory.mktemp("runs") / "kept")


@pytest.mark.parametrize("run", range(4), ids=CORRUPTIONS)
def test_data_that_are_kept_are_those_that_clients_trained_with(run, plan, folder):
    (dataset,) = plan.datasets.values()
    kind, data, clean = CORRUPTIONS[run], folder.runs()[run].read_data(), dataset.train
    assert set(data) == set(clean._fields) - {"malicious"}  # no client is, in these runs
    assert all(data[name].dtype == getattr(clean, name).dtype for name in data)
    assert data["offsets"].tolist() == clean.offsets.tolist()
    rows_by_client = {r["client_id"]: r for r in folder.read("clients").to_dicts() if r["run"] == run}
    for client, (offset, count) in enumerate(zip(clean.offsets, clean.num_examples, strict=True)):
        rows = slice(offset, offset + count)
        is_corrupted = bool(data["corrupted"][client])
        assert client not in rows_by_client or rows_by_client[client]["corrupted"] == is_corrupted
        changed = {name for name in ("x", "y") if not np.array_equal(data[name][rows], getattr(clean, name)[rows])}
        assert changed <= ({"shuffling": {"y"}, "noisy": {"x"}}.get(kind, set()) if is_corrupted else set())
        assert sorted(data["y"][rows]) == sorted(clean.y[rows])
        assert data["num_examples"][client] == (0 if is_corrupted and kind == "exclude" else count)
    assert data["corrupted"].sum() == (0 if kind == "none" else 3)
    is_changed = not all(np.array_equal(data[name], getattr(clean, name)) for name in ("x", "y", "num_examples"))
    assert is_changed == (kind != "none")
