"""One run on several real processes of this machine: rows of a single process, and an end for all when one fails."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from fedsim.engine.ending import LOST
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from fedsim.engine import processes, transfer
from fedsim.engine.layout import Machine, _devices
from fedsim.errors import ConfigError
from fedsim.runs.folder import RunFolder
from tests.conftest import check_equal

TINY = """
[data]
num_clients = 6
partition = "dirichlet"
[mlp]
hidden_sizes = [4]
[client]
batch_size = 16
[server]
cohort_size = 4
num_rounds = 12
eval_every = 2
[corruption]
kind = "shuffling"
fraction = 0.5
[record]
models = true
[[sweep]]
server.aggregator = "fedavg"
seed = [0, 1, 2, 3]
[[sweep]]
server.aggregator = "arfl"
"""
# With 4 devices, FedAvg's group takes one for each run, and ARFL's shares the cohort of its only run.
LAYOUTS = [(4, 1), (1, 4)]
RULE = """
import os

from fedsim.aggregators import fedavg as rule


def fedavg():
    if "FAIL" in os.environ:
        raise ValueError("this process fails")
    return rule()
"""
SCRIPT = """
import sys, jax, fedsim
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
experiment = fedsim.load(sys.argv[4], data__placement="host")
result = fedsim.run(experiment, out=sys.argv[5], progress=False)
print(result.rounds.height)
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def start(command, num_devices, **variables) -> subprocess.Popen:
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(num_devices)} | variables
    return subprocess.Popen(
        [sys.executable, *map(str, command)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def start_run(config, out, num_processes, num_devices, *options, failing=None) -> list[subprocess.Popen]:
    """`fedsim run` on several processes, with environment FAIL on one of them."""
    address = f"localhost:{free_port()}"
    run = ["-m", "fedsim", "run", config, "--out", out, *options, "--coordinator", address]
    return [
        start(
            [*run, "--num-processes", num_processes, "--process-id", process],
            num_devices,
            **({"FAIL": "1"} if process == failing else {}),
        )
        for process in range(num_processes)
    ]


def finish(started, seconds=240) -> list[tuple[int, str]]:
    """Exit code and standard error of each process."""
    results = []
    for process in started:
        _, printed = process.communicate(timeout=seconds)
        results.append((process.returncode, printed))
    return results


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("processes")
    (directory / "tiny.toml").write_text(TINY)
    return directory


@pytest.fixture(scope="module")
def reference(directory) -> RunFolder:
    """The run on one process with four devices."""
    command = ["-m", "fedsim", "run", directory / "tiny.toml", "--out", directory / "reference"]
    ((code, printed),) = finish([start(command, 4)])
    assert code == 0, printed
    return RunFolder(directory / "reference")


def layouts(folder: RunFolder) -> list[tuple[int, int]]:
    layouts = [group.record.layout for group in folder.groups()]
    return [(layout["run_devices"], layout["client_devices"]) for layout in layouts]


def check_models_equal(folder: RunFolder, reference: RunFolder) -> None:
    for run, same in zip(folder.runs(), reference.runs(), strict=True):
        expected = same.read_model()
        for name, array in run.read_model().items():
            np.testing.assert_array_equal(array, expected[name])


def test_two_processes_have_the_rows_of_one(directory, reference):
    results = finish(start_run(directory / "tiny.toml", directory / "two", 2, 2))
    assert [code for code, _ in results] == [0, 0], results
    assert "all rounds completed" in results[0][1]
    assert results[1][1] == ""  # only process 0 shows anything
    folder = RunFolder(directory / "two")
    assert layouts(folder) == layouts(reference) == LAYOUTS
    check_equal(folder, reference)
    check_models_equal(folder, reference)
    summary = (folder.path / "summary.csv").read_text()
    assert summary == (reference.path / "summary.csv").read_text()


def test_a_script_may_connect_processes_itself(directory, reference):
    """With data in host memory: each process gathers the examples of its devices."""
    script, address = directory / "script.py", f"localhost:{free_port()}"
    script.write_text(SCRIPT)
    out = directory / "script"
    started = [start([script, address, 2, process, directory / "tiny.toml", out], 2) for process in range(2)]
    outputs = [process.communicate(timeout=240) for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert {printed.splitlines()[-1] for printed, _ in outputs} == {str(reference.read("rounds").height)}
    folder = RunFolder(out)
    assert layouts(folder) == LAYOUTS
    assert all(group.record.layout["buffer_examples"] for group in folder.groups())
    check_equal(folder, reference)


def test_killed_runs_end_as_one_and_resume_on_other_processes(directory, reference):
    """Killed once in each group, then completed by one process with four devices."""
    config, out = directory / "tiny.toml", directory / "killed"
    for victim, rule in ((1, "fedavg"), (0, "arfl")):
        started = start_run(config, out, 2, 2, "--checkpoint-seconds", "0")
        wait_for_checkpoint(out, rule, started)
        started[victim].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        results = finish(started)
        assert time.monotonic() - killed < 30
        code, printed = results[1 - victim]
        assert code == 2, printed
        assert printed.splitlines()[-1] == f"fedsim: error: {LOST}"
        assert "Traceback" not in printed
        assert "absl" not in printed
    ((code, printed),) = finish([start(["-m", "fedsim", "run", config, "--out", out], 4)])
    assert code == 0, printed
    assert "resumes after round" in printed
    check_equal(RunFolder(out), reference)
    check_models_equal(RunFolder(out), reference)


def wait_for_checkpoint(out: Path, rule: str, started: list[subprocess.Popen]) -> None:
    deadline = time.monotonic() + 240
    while not any(path.name.isdigit() for path in out.glob(f"groups/{rule}-*/checkpoints/*")):
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in started), finish(started)
        time.sleep(0.02)


def test_an_error_of_one_process_ends_all(directory):
    (directory / "rule.py").write_text(RULE)
    config = directory / "plugin.toml"
    config.write_text(TINY.replace('"fedavg"', '"rule.py:fedavg"'))
    results = finish(start_run(config, directory / "failed", 2, 2, failing=1))
    assert [code for code, _ in results] == [2, 2], results
    assert "this process fails" in results[1][1].splitlines()[-1]
    assert results[0][1].splitlines()[-1].startswith("fedsim: ended by process 1: error: ")
    assert "this process fails" in results[0][1].splitlines()[-1]
    assert not any("Traceback" in printed for _, printed in results)


def test_an_error_of_all_processes_is_printed_by_all(directory):
    results = finish(start_run(directory / "tiny.toml", directory / "refused", 2, 2, "--server.cohort-size", "7"))
    assert [code for code, _ in results] == [2, 2], results
    assert all(
        printed.startswith("fedsim: error: on the command line: server.cohort_size: must be") for _, printed in results
    ), results


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


def test_a_single_process_decides_for_itself():
    answers = iter([3, 1])
    assert list(processes.decide_each(answers)) == [3, 1]
    assert processes.decide(lambda: "x") == "x"
    assert (processes.count(), processes.index(), processes.is_primary()) == (1, 0, True)
    processes.wait_for_all()


def test_arrays_are_put_in_parts_as_whole():
    """The parts of a process's own devices are those of the whole array, for numbers, keys and scalars."""
    mesh = jax.make_mesh((1,), ("runs",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec())
    keys = jax.random.split(jax.random.key(3), 4)
    for array in (np.arange(6.0).reshape(2, 3), np.int64(5), keys):
        expected = jax.device_put(array, sharding)
        placed = transfer._put_parts(array, sharding)
        assert placed.dtype == expected.dtype
        plain = jax.random.key_data if array is keys else np.asarray
        np.testing.assert_array_equal(plain(placed), plain(expected))
