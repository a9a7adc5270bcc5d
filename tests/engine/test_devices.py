"""Several devices: a sweep's runs, or a run's cohort, spread over 8 host devices give the results of one."""

import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

CONFIG = """
[data]
num_clients = 12
partition = "dirichlet"
[model]
hidden_sizes = [8]
[corruption]
kind = "shuffling"
fraction = 0.25
[server]
cohort_size = 6
num_rounds = 3
eval_every = 2
[engine]
client_width = 1
run_width = 1
[[sweep]]
server.aggregator = ["arfl", "rfa"]
seed = [0, 1, 2]
"""
# A program of its own: the number of devices is fixed when jax starts.
RUN = """
import sys
from fedsim.cli.main import main
for devices in sys.argv[2:]:
    assert main(["run", sys.argv[1], "--out", f"out-{devices}", "--engine.client-devices", devices]) == 0
"""


def run(folder, num_devices, *client_devices):
    command = [sys.executable, "-c", RUN, "c.toml", *client_devices]
    (folder / "c.toml").write_text(CONFIG)
    result = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "JAX_NUM_CPU_DEVICES": str(num_devices)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    one, eight = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("eight")
    run(one, 1, "1")
    run(eight, 8, "1", "4", "8")
    return one, eight


@pytest.mark.parametrize("client_devices", [1, 4, 8])  # 3, 2 and 1 devices for the runs
@pytest.mark.parametrize("table", ["rounds", "clients"])
def test_eight_devices_are_one(client_devices, table, folders):
    one, eight = folders
    expected = pq.read_table(one / "out-1" / f"{table}.parquet")
    assert pq.read_table(eight / f"out-{client_devices}" / f"{table}.parquet").equals(expected)


COUNT = "from fedsim import devices; devices.one_per_core(); import jax; print(jax.device_count())"


@pytest.mark.parametrize(("environment", "expected"), [({}, None), ({"JAX_NUM_CPU_DEVICES": "3"}, 3)])
def test_a_device_for_each_core_unless_chosen(environment, expected):
    """Also where jax has started already: nothing happens."""
    inherited = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    command = [sys.executable, "-c", f"{COUNT}; devices.one_per_core()"]
    done = subprocess.run(command, env=inherited | environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == (expected or min(8, len(os.sched_getaffinity(0))))
