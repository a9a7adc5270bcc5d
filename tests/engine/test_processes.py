"""One run on several real processes of this machine: the rows of a single process, also after one was killed."""

import os
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from fedsim.engine import processes
from fedsim.engine.layout import Machine, _devices
from fedsim.errors import ConfigError, RunFolderError
from fedsim.runs.folder import RunFolder
from tests.conftest import check_equal

TINY = """
data = {num_clients = 6, partition = "dirichlet"}
mlp.hidden_sizes = [4]
client.batch_size = 16
server = {cohort_size = 4, num_rounds = 12, eval_every = 2}
corruption = {kind = "shuffling", fraction = 0.5}
record.models = true
[[sweep]]
server.aggregator = "fedavg"
seed = [0, 1, 2, 3]
[[sweep]]
server.aggregator = "arfl"
"""
# With 4 devices, FedAvg's group takes one for each run, and ARFL's shares the cohort of its only run.
LAYOUTS = [(4, 1), (1, 4)]


def start(*arguments, num_devices) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "fedsim", "run", *map(str, arguments)],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": str(num_devices)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_two(*arguments) -> list[subprocess.Popen]:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        address = f"localhost:{listener.getsockname()[1]}"
    several = ["--coordinator", address, "--num-processes", 2, "--process-id"]
    return [start(*arguments, *several, process, num_devices=2) for process in range(2)]


@pytest.mark.slow
def test_two_processes_have_the_rows_of_one_also_after_one_was_killed(tmp_path):
    config, out = tmp_path / "tiny.toml", tmp_path / "two"
    config.write_text(TINY)
    first, second = start_two(config, "--out", out, "--checkpoint-seconds", 0)
    deadline = time.monotonic() + 300
    while not any(path.name.isdigit() for path in out.glob("groups/*/checkpoints/*")):
        assert time.monotonic() < deadline
        assert first.poll() is None, first.communicate()
        time.sleep(0.02)
    second.send_signal(signal.SIGKILL)
    assert first.wait(timeout=300) != 0

    reference = start(config, "--out", tmp_path / "one", num_devices=4)
    resumed = start_two(config, "--out", out)
    printed = [process.communicate(timeout=600)[1] for process in (*resumed, reference)]
    assert [process.returncode for process in (*resumed, reference)] == [0, 0, 0], printed
    assert "resumes after round" in printed[0]
    assert printed[1] == ""  # only process 0 shows anything
    one, two = RunFolder(tmp_path / "one"), RunFolder(out)
    for folder in (one, two):
        layouts = [group.record.layout for group in folder.groups()]
        assert [(layout["run_devices"], layout["client_devices"]) for layout in layouts] == LAYOUTS
    check_equal(two, one)
    for run, same in zip(two.runs(), one.runs(), strict=True):
        expected = same.read_model()
        for name, array in run.read_model().items():
            np.testing.assert_array_equal(array, expected[name])
    assert (out / "summary.csv").read_text() == (one.path / "summary.csv").read_text()


def fail():
    raise RunFolderError("runs/a: cannot be used")


def test_decisions_of_process_0_and_its_errors_reach_the_others(monkeypatch):
    """The broadcasts of process 0 are kept, and process 1 gets them."""
    sent = []

    def broadcast(array):
        if jax.process_index() == 0:
            sent.append(array)
            return array
        received = sent.pop(0)
        assert (array.shape, array.dtype) == (received.shape, received.dtype)
        return received

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes, "wait_for_all", lambda: None)
    monkeypatch.setattr(processes.multihost_utils, "broadcast_one_to_all", broadcast)
    decision = {"runs": list(range(1000)), "none": None}
    assert processes.decide(lambda: decision) == decision
    with pytest.raises(RunFolderError, match="cannot be used"):
        processes.decide(fail)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    assert processes.decide(fail) == decision
    with pytest.raises(RunFolderError, match="cannot be used"):
        processes.decide(fail)
    assert not sent


@given(
    client_devices=st.sampled_from(["auto", 1, 2, 3, 4]),
    num_runs=st.integers(1, 20),
    cohort_size=st.integers(1, 20),
    num_processes=st.integers(1, 6),
    local_devices=st.integers(1, 8),
)
def test_processes_share_devices_evenly(client_devices, num_runs, cohort_size, num_processes, local_devices):
    num_devices = num_processes * local_devices
    machine = Machine("cpu", num_devices, 2**30, num_processes)
    try:
        rows, columns = _devices(client_devices, num_runs, cohort_size, machine)
    except ConfigError:
        assert client_devices != "auto"
        return
    assert rows * columns <= num_devices
    assert rows * columns % num_processes == 0
    if num_processes == 1:
        assert rows <= num_runs


def test_arrays_are_put_in_parts_as_whole():
    """The parts of a process's own devices are those of the whole array, for numbers, keys and scalars."""
    mesh = jax.make_mesh((1,), ("runs",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec())
    keys = jax.random.split(jax.random.key(3), 4)
    for array in (np.arange(6.0).reshape(2, 3), np.int64(5), keys):
        expected = jax.device_put(array, sharding)
        placed = processes._put_parts(array, sharding)
        assert placed.dtype == expected.dtype
        plain = jax.random.key_data if array is keys else np.asarray
        np.testing.assert_array_equal(plain(placed), plain(expected))
