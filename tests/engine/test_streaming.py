"""Client data on the host: buffers hold the examples of cohorts, and rows are those of data on the devices."""

import shutil

import numpy as np
import polars as pl
import pytest

import fedsim
from fedsim.engine import make_plan, run_plan
from fedsim.engine.layout import Layout, Machine
from fedsim.engine.streamed import buffers
from fedsim.engine.streamed.stream import portion_size
from fedsim.errors import ConfigError
from fedsim.runs.folder import RunFolder
from tests.conftest import check_equal
from tests.engine.test_store import compute

PERSONAL = """
import jax
import fedsim


def personal():
    '''Training that is pulled to the client's model of its last round, at first the initial model.'''

    def train(local, client_state, server_state):
        pull = lambda gradient, params: jax.tree.map(lambda g, p, c: g + 0.5 * (p - c), gradient, params, client_state)
        trained = local.sgd(pull)
        return fedsim.LocalResult(trained, trained.params, ())

    return fedsim.Algorithm(lambda params: (params, ()), train, lambda server_state, messages, valid, num_clients: ())
"""

TABLES = {
    "data": {"num_clients": 30, "num_train": 400, "num_test": 60, "partition": "dirichlet"},
    "dirichlet": {"min_examples": 2},
    "mlp": {"hidden_sizes": [4]},
    "client": {"batch_size": 8},
    "server": {"cohort_size": 4, "num_rounds": 5, "eval_every": 3},
    "corruption": {"kind": "shuffling", "fraction": 0.3},
    "engine": {"client_width": 2, "run_width": 2},
    "record": {"clients": "all"},
    "seed": fedsim.sweep([0, 1, 2]),
}
RUNS = {
    "family with exclusion that starts later": {
        "server__aggregator": fedsim.sweep(["fedavg", "arfl"]),
        "corruption__kind": "exclude",
        "corruption__start_round": 3,
    },
    "noise that starts later, and malicious clients of their own": {
        "corruption__kind": "noisy",
        "corruption__start_round": 3,
        "client__loss_at": "aggregated",
        "server__aggregator": "trimmed_mean",
        "server__weighting": "arfl",
        "attack__kind": "ipm",
        "attack__fraction": 0.2,
    },
}


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch):
    """Buffers that hold the cohorts of a single round, so that chunks are computed in several segments."""
    monkeypatch.setattr(buffers, "BUFFER_SHARE", 1e-12)


def plan_of(place: str, **changes):
    return make_plan(fedsim.load(TABLES, data__placement=place, **changes))


@pytest.mark.parametrize("name", RUNS)
def test_rows_are_those_of_data_on_the_device(name, tmp_path):
    on_device, on_host = plan_of("device", **RUNS[name]), plan_of("host", **RUNS[name])
    assert all(group.layout.buffer_examples == 0 for group in on_device.groups)
    assert all(0 < group.layout.buffer_examples < 400 for group in on_host.groups)
    folder = run_plan(on_host, tmp_path / "host")
    check_equal(run_plan(on_device, tmp_path / "device"), folder)
    clients = folder.read("clients").filter(pl.col("weight").is_not_null())
    assert clients["num_examples"].min() > 0  # also of clients that are excluded later
    assert "exclusion" not in name or clients.filter("corrupted")["round"].unique().to_list() == [1, 2]


def test_resumes_states_of_clients(tmp_path):
    """Also of clients that have not trained, whose state is not zero; as data on the device, which are not resumed."""
    (tmp_path / "personal.py").write_text(PERSONAL)
    changes = {"client__algorithm": "personal.py:personal", "corruption__start_round": 2, "record__losses": False}
    compute(plan_of("host", **changes), tmp_path / "stopped", calls=2)
    assert compute(plan_of("host", **changes), tmp_path / "stopped").resumed == [3]
    folder = RunFolder(tmp_path / "stopped")
    check_equal(folder, run_plan(plan_of("device", **changes), tmp_path / "whole"))
    clients = folder.read("clients")
    assert clients["weight"].null_count() < clients["loss"].null_count() == clients.height  # which are not recorded


def test_portions_fit_into_a_buffer_that_is_smaller_than_a_wave():
    sizes = np.full(100, 7)
    for buffer_examples, portion in ((70, 10), (16 * 7, 16), (40 * 7, 32), (999, 96), (699, 96)):
        layout = Layout(client_width=2, client_devices=8, buffer_examples=min(buffer_examples, 700))
        assert portion_size(sizes, layout) == portion


def test_auto_takes_the_host_where_data_do_not_fit():
    experiment = fedsim.load(TABLES)
    machines = [Machine("tpu", 1, memory) for memory in (10 * 460 * 64, 3 * 460 * 64 // 2)]  # bytes of all images
    plenty, little = (make_plan(experiment, machine) for machine in machines)
    assert [plan.groups[0].layout.buffer_examples > 0 for plan in (plenty, little)] == [False, True]
    assert not plenty.notes
    assert any("data.placement" in note and "host" in note for note in little.notes)


@pytest.mark.parametrize(
    ("changes", "reason"), [({"record__data": True}, "record.data"), ({"corruption__kind": "shift"}, "corruption.kind")]
)
def test_refuses_the_host_where_all_inputs_are_needed(changes, reason):
    tables = TABLES | {"data": {"name": "separable_2d", "num_clients": 30}} if "shift" in changes.values() else TABLES
    with pytest.raises(ConfigError, match=rf'data\.placement: must be "device" or "auto" for {reason}.*got "host"'):
        make_plan(fedsim.load(tables, data__placement="host", **changes))


def test_states_are_counted_for_each_algorithm():
    plan = plan_of("host", client__algorithm=fedsim.sweep(["fedavg", "scaffold", "worker_momentum"]))
    assert [group.layout.buffer_clients > 0 for group in plan.groups] == [False, True, True]


def test_states_that_do_not_fit_on_the_disk_are_refused_with_their_size(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(1, 1, 1000))
    states = 3 * 30 * 4 * (64 * 4 + 4 + 4 * 10 + 10)  # runs, clients, bytes, parameters
    with pytest.raises(ConfigError, match=rf"scaffold keeps {states / 2**20:.0f} MiB .* 30 clients in 3 runs"):
        plan_of("host", client__algorithm="scaffold")
