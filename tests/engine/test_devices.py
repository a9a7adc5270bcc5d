"""Several devices: a sweep's runs, or a run's cohort, spread over 4 host devices give the results of one."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from fedsim.config.toml import read
from fedsim.engine import make_plan, run_plan
from fedsim.runs.folder import RunFolder
from tests.conftest import check_equal

CONFIG = """
data = {num_clients = 12, partition = "dirichlet"}
mlp.hidden_sizes = [8]
corruption = {kind = "shuffling", fraction = 0.25}
server = {cohort_size = 5, num_rounds = 3, eval_every = 2}
engine = {client_width = 1, run_width = 1}
[[sweep]]
server.aggregator = ["rfa", "median"]
client.algorithm = "scaffold"
seed = [0, 1, 2]
[[sweep]]
server.aggregator = "arfl"
client.loss_at = "aggregated"
seed = [0, 1, 2]
"""
# A program of its own: the number of devices is fixed when jax starts.
RUN = """
import sys
from pathlib import Path
from fedsim.config.toml import read
from fedsim.engine import make_plan, run_plan
for devices in sys.argv[2:]:
    plan = make_plan(read(Path(sys.argv[1]), {"engine.client_devices": int(devices)}))
    run_plan(plan, Path(f"out-{devices}"))
"""


def run(folder, num_devices, *client_devices):
    command = [sys.executable, "-c", RUN, "c.toml", *client_devices]
    (folder / "c.toml").write_text(CONFIG)
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": str(num_devices)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The run in this process, which has one device; and those of a process with four."""
    folder = tmp_path_factory.mktemp("devices")
    run(folder, 4, "1", "2")
    one = run_plan(make_plan(read(folder / "c.toml")), folder / "one")
    return one, {client_devices: RunFolder(folder / f"out-{client_devices}") for client_devices in (1, 2)}


@pytest.mark.slow
@pytest.mark.parametrize("client_devices", [1, 2])  # 3 and 2 devices for the runs
def test_four_devices_are_one(client_devices, folders):
    """Also for 3 runs on 2 devices, a cohort of 5 on 2, states of clients, and two rules in one program."""
    one, four = folders[0], folders[1][client_devices]
    check_equal(four, one)
    layouts = [group.record.layout for group in four.groups()]
    assert {layout["client_devices"] for layout in layouts} == {client_devices}
    assert {layout["run_devices"] for layout in layouts} == {min(3, 4 // client_devices)}


DEVICES = "from fedsim.engine import devices; devices.use_one_per_core(); import jax; jax.devices()"
COUNT = "from fedsim.engine import devices; devices.use_one_per_core(); import jax; print(jax.device_count())"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, None), ({"JAX_NUM_CPU_DEVICES": "3"}, 3), ({"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}, 2)],
)
def test_a_device_for_each_core_unless_chosen(environment, expected):
    """Also where jax has started already: nothing happens."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")}
    command = [sys.executable, "-c", f"{COUNT}; devices.use_one_per_core()"]
    done = subprocess.run(command, env=inherited | environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == (expected or min(8, len(os.sched_getaffinity(0))))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("libtpu") is None, reason="needs the TPU's compiler: the extra tpu-compile")
def test_a_compiler_for_tpus_is_silent_without_one():
    """JAX starts libtpu to look for TPUs."""
    environment = {key: value for key, value in os.environ.items() if key != "JAX_PLATFORMS" and "TPU" not in key}
    command = [sys.executable, "-c", DEVICES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
