"""Large data under a real limit of memory, in processes of their own; portions against whole arrays."""

import hashlib
import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest

from fedsim import host_memory
from fedsim.cli.main import main
from fedsim.datasets import arrays, portions
from fedsim.datasets.federated import make_federated_dataset
from fedsim.datasets.portions import Spool
from fedsim.engine import memory
from fedsim.engine.environment import dataset_digest
from fedsim.errors import ConfigError, DataError
from tests.conftest import make_dataset
from tests.datasets.build import build_dataset
from tests.docs.pages import ROOT

CHILD = """
import resource, sys, time
import jax, psutil
from fedsim.engine import devices, memory
from fedsim.engine.environment import dataset_digest
from tests.datasets.build import build_dataset

text, limit, mebibytes = sys.argv[1:]
jax.devices()
kind, name = {"data": (resource.RLIMIT_DATA, "data"), "as": (resource.RLIMIT_AS, "vms")}[limit]
measure = lambda: getattr(psutil.Process().memory_info(), name)
used, before = measure(), None
while used != before:  # a thread of JAX that ends gives memory back
    time.sleep(0.2)
    used, before = measure(), used
resource.setrlimit(kind, (used + int(mebibytes) * 2**20,) * 2)
assert devices.free_bytes() <= int(mebibytes) * 2**20
"""
NATURAL = ("--clients", "natural", "--suspect", "shuffling")
LOAD = "dataset = build_dataset(text)\nprint(dataset.train.x.nbytes, dataset_digest(dataset))\n"
PLAN = "from fedsim.config import toml\nfrom fedsim.engine import make_plan\nmake_plan(toml.parse(text))\n"
RUN = """
import tempfile
from pathlib import Path
from fedsim.config import toml
from fedsim.engine import make_plan, run_plan
plan = make_plan(toml.parse(text))
assert plan.groups[0].layout.buffer_examples < 500_000
with tempfile.TemporaryDirectory() as folder:
    print(run_plan(plan, Path(folder)).read("rounds").height)
"""
SMALL_RUN = """
data.placement = "host"
mlp.hidden_sizes = [2]
server = {aggregator = "arfl", cohort_size = 10, num_rounds = 2}
record.clients = "none"
"""


def run_limited(code, text, limit, mebibytes, returncode=0):
    """The words that the code prints under a limit of memory; its errors if it should fail."""
    command = [sys.executable, "-c", CHILD + code, text, limit, str(mebibytes)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == returncode, result.stderr
    return result.stderr if returncode else result.stdout.split()


def write_folder(folder, num_examples, num_clients, is_sorted=True):
    """A folder of .npy files; inputs are zeros in a sparse file, except the number of each example."""
    folder.mkdir()
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.int32, (num_examples, 196))
    step = max(1, num_examples // 1000)  # writes few pages
    x[::step, 0] = np.arange(0, num_examples, step)
    client_ids = np.arange(num_examples, dtype=np.int32) % num_clients
    np.save(folder / "client_ids.npy", np.sort(client_ids) if is_sorted else client_ids)
    np.save(folder / "y.npy", np.arange(num_examples, dtype=np.int32) % 3)
    np.save(folder / "x_test.npy", np.zeros((2, 196), np.int32))
    np.save(folder / "y_test.npy", np.zeros(2, np.int32))
    return f'data.name = "arrays"\ndata.partition = "natural"\narrays.path = "{folder}"'


@pytest.mark.slow
def test_a_population_larger_than_the_limit_is_streamed(tmp_path):
    """The losses of all clients before the first round read all examples once."""
    text = write_folder(tmp_path / "large", 1_000_000, 1000)
    assert run_limited(RUN, text + SMALL_RUN, "data", 640)[-1] == "2"  # the data have 750 MiB


@pytest.mark.slow
def test_examples_that_must_be_reordered_go_to_a_file_if_memory_is_scarce(tmp_path):
    text = write_folder(tmp_path / "unsorted", 100_000, 100, is_sorted=False)  # 75 MiB
    assert run_limited(LOAD, text, "data", 128)[1] == dataset_digest(build_dataset(text))


@pytest.mark.slow
def test_a_limit_of_the_address_space_counts():
    assert run_limited("", "", "as", 1024) == []


@pytest.mark.slow
def test_data_that_do_not_fit_are_refused_before_they_are_placed(tmp_path):
    text = write_folder(tmp_path / "folder", 100_000, 100)
    names = (*arrays.REQUIRED, "x_test", "y_test", "client_ids")
    np.savez(tmp_path / "mine.npz", **{name: np.load(tmp_path / "folder" / f"{name}.npy") for name in names})
    text = text.replace(str(tmp_path / "folder"), str(tmp_path / "mine.npz")) + '\ndata.placement = "device"'
    error = run_limited(PLAN, text, "data", 140, returncode=1)
    assert "fedsim.errors.ConfigError: data.name: all examples of mine must fit on a device, which has" in error
    assert "folder of .npy files" in error


def test_data_on_a_device():
    dataset = make_dataset()
    needed = memory.data_bytes(dataset, "gpu")
    assert needed == sum(np.asarray(a).nbytes for a in jax.tree.leaves((dataset.train, dataset.x_test, dataset.y_test)))
    memory.check_data_fits(dataset, needed, "gpu")
    with pytest.raises(
        ConfigError, match=r"^data\.name: .* must fit on a device, .*; use data.placement .* or free memory$"
    ):
        memory.check_data_fits(dataset, needed - 1, "gpu")
    with pytest.raises(ConfigError, match=r"; they must be there for record\.data = true; use fewer"):
        memory.check_data_fits(dataset, needed - 1, "gpu", "record.data = true")


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_control_groups(tmp_path, version):
    """A job of 1,000 bytes, 700 of which are in use and 300 of these are files, in a machine without a limit."""
    limit, usage, (key, _) = host_memory.V1_FILES if version == 1 else host_memory.V2_FILES
    top = tmp_path / "memory" if version == 1 else tmp_path
    (top / "job" / "step").mkdir(parents=True)
    for folder, text in ((top / "job", "1000"), (top / "job" / "step", "max" if version == 2 else str(2**62))):
        for name, content in ((limit, text), (usage, "700"), ("memory.stat", f"{key} 300\nanon 400")):
            (folder / name).write_text(f"{content}\n")
    controllers = "5:cpu,memory" if version == 1 else "0:"
    (tmp_path / "groups").write_text(f"{controllers}:/job/step\n1:pids:/other\n")
    free = list(host_memory._free_under_control_groups(tmp_path / "groups", tmp_path))
    assert min(free) == 600
    assert list(host_memory._free_under_control_groups(tmp_path / "none", tmp_path)) == []


@pytest.fixture
def small_portions(monkeypatch):
    monkeypatch.setattr(portions, "PORTION_BYTES", 64)


@pytest.mark.usefixtures("small_portions")
def test_portions_equal_whole_arrays(monkeypatch):
    rng = np.random.default_rng(0)
    array, positions = rng.normal(size=(37, 3)), rng.permutation(37)[:20]
    np.testing.assert_array_equal(portions.take(array, positions), array[positions])
    assert np.shares_memory(portions.take(array, slice(3, 9)), array)
    np.testing.assert_array_equal(portions.convert(array, np.float32), array.astype(np.float32))
    assert portions.convert(array, np.float64) is array
    assert portions.all_finite(array)
    array[36, 2] = np.inf
    assert not portions.all_finite(array)
    assert portions.empty((5, 3), np.float32).ctypes.data % portions.ALIGNMENT == 0
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 0)
    copy = portions.take(array, positions)
    assert isinstance(copy, np.memmap)
    np.testing.assert_array_equal(copy, array[positions])


def test_no_room_for_a_copy_is_one_line(monkeypatch):
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 0)
    with pytest.raises(DataError, match=r"^data\.name: .* must fit into memory or .*; set TMPDIR"):
        portions.empty((2**50,), np.uint8)


@pytest.mark.usefixtures("small_portions")
def test_a_spool_is_the_concatenation_of_its_parts():
    parts = [np.arange(6 * n, dtype=np.int16).reshape(n, 3, 2)[:, ::-1] for n in (20, 0, 1)]
    spool = Spool()
    for part in parts:
        spool.append(part)
    array = spool.array()
    np.testing.assert_array_equal(array, np.concatenate(parts))
    assert spool._file.closed


@pytest.mark.usefixtures("small_portions")
def test_the_digest_is_that_of_whole_arrays():
    dataset = make_dataset()
    digest = hashlib.blake2b(f"{dataset.num_classes} {dataset.inputs}".encode(), digest_size=8)
    for array in map(np.ascontiguousarray, jax.tree.leaves((dataset.train, dataset.x_test, dataset.y_test))):
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    assert dataset_digest(dataset) == digest.hexdigest()


def test_a_folder_of_arrays(tmp_path):
    """Inputs of sorted clients are the file itself; the same arrays as .npz are the same data set."""
    text = write_folder(tmp_path / "mine", 60, 4)
    for name, value in (("inputs", "vector"), ("num_classes", 5), ("test_client_ids", np.asarray([1, 7]))):
        np.save(tmp_path / "mine" / f"{name}.npy", value)
    dataset = build_dataset(text)
    mapped = dataset.train.x
    while not isinstance(mapped, np.memmap):
        mapped = mapped.base
    assert np.shares_memory(dataset.train.x, mapped)
    assert not dataset.train.x.flags.writeable
    assert (dataset.num_classes, dataset.test_clients.tolist()) == (5, [1, 4])
    names = (*arrays.REQUIRED, *arrays.OPTIONAL)
    np.savez(tmp_path / "mine.npz", **{name: np.load(tmp_path / "mine" / f"{name}.npy") for name in names})
    raw = arrays.read(tmp_path / "mine.npz")
    without_test_clients = replace(dataset, test_clients=None)
    assert dataset_digest(make_federated_dataset(raw, raw.client_ids)) == dataset_digest(without_test_clients)
    config = tmp_path / "mine.toml"
    assert main(["init", str(config), "--data-path", str(tmp_path / "mine"), *NATURAL]) == 0
    assert 'name = "arrays"' in config.read_text()
    (tmp_path / "mine" / "x_test.npy").write_bytes(b"hello")
    with pytest.raises(DataError, match=r"x_test\.npy: not an \.npy file"):
        build_dataset(text)
