"""Files damaged as by a disk or an interrupted copy raise an error of one line, or are read as valid data. 2,800 cases.

Run with `pytest -m fuzz`; takes one or two minutes.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv

from fedsim import report
from fedsim.config import toml
from fedsim.datasets import prepared, table, table_files
from fedsim.datasets.arrays import read
from fedsim.datasets.builders import prepare
from fedsim.datasets.canonical import canonicalize
from fedsim.datasets.huggingface import huggingface
from fedsim.datasets.leaf import read_folder
from fedsim.datasets.raw import RawDataset
from fedsim.datasets.sampling import split_test
from fedsim.engine import make_plan, run_plan
from fedsim.errors import ConfigError, FedsimError
from fedsim.runs.folder import RunFolder
from tests.datasets.build import write_leaf

pytestmark = pytest.mark.fuzz
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
NUMBERS = [*b'0 -1 1 3 0.5 99999999999999999999 1e400 nan null "x" [] {}'.split(), b""]
SMALL = """
name = "small"

[data]
num_clients = 6
num_train = 120
partition = "dirichlet"

[dirichlet]
alpha = 0.5

[mlp]
hidden_sizes = [8, 4]

[client]
learning_rate = 0.1

[server]
cohort_size = 4
num_rounds = 2
eval_every = 1
pre_aggregators = ["nnm"]

[preset.small]
server.num_rounds = 1

[[sweep]]
server.aggregator = ["fedavg", "arfl"]
corruption.kind = "shuffling"
corruption.fraction = [0.0, 0.5]
seed = [0, 1]
"""


def damage_bytes(data: bytes, draw: Any) -> bytes:
    """`data` truncated, without a piece, or with a bit flipped, two pieces swapped or a number replaced."""
    kind = draw(st.sampled_from(["truncate", "flip", "swap", "number", "drop", "empty"]))
    size = len(data)
    if kind == "empty" or not size:
        return b""
    position = draw(st.integers(0, size - 1))
    if kind == "truncate":
        return data[:position]
    if kind == "flip":
        return data[:position] + bytes([data[position] ^ (1 << draw(st.integers(0, 7)))]) + data[position + 1 :]
    other = draw(st.integers(0, size - 1))
    low, high = sorted((position, other))
    if kind == "drop":
        return data[:low] + data[high:]
    if kind == "swap":
        length = min(draw(st.integers(1, 40)), high - low, size - high)
        first, second = data[low : low + length], data[high : high + length]
        return data[:low] + second + data[low + length : high] + first + data[high + length :]
    numbers = list(NUMBER.finditer(data))
    if not numbers:
        return data
    match = draw(st.sampled_from(numbers))
    return data[: match.start()] + draw(st.sampled_from(NUMBERS)) + data[match.end() :]


def damage_folder(folder: Path, draw: Any) -> Path:
    """Deletes or damages a random file of the folder; returns its path."""
    path = draw(st.sampled_from(sorted(path for path in folder.rglob("*") if path.is_file())))
    if draw(st.integers(0, 9)) == 0:
        path.unlink()
    else:
        path.write_bytes(damage_bytes(path.read_bytes(), draw))
    return path


def copy_folder(source: Path, target: Path) -> Path:
    """Replaces `target` by a copy of the folder `source`; returns `target`."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def fuzz(num_cases):
    return settings(max_examples=num_cases, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


def check_line(error: FedsimError) -> None:
    """The message is a single line of less than 1,000 characters."""
    text = str(error)
    assert text
    assert "\n" not in text
    assert len(text) < 1000


def check_read(read: Callable[[], RawDataset]) -> None:
    """What is read and checked has consistent inputs, labels and client ids, or it is refused in a line."""
    try:
        raw = canonicalize(read(), needs_test=False)
    except FedsimError as error:
        check_line(error)
        return
    assert len(raw.x) == len(raw.y) > 0
    assert len(raw.x_test) == len(raw.y_test)
    if raw.num_classes:
        assert 0 <= raw.y.min() <= raw.y.max() < raw.num_classes
    else:
        assert np.isfinite(raw.y).all()
    if raw.client_ids is not None:
        assert len(raw.client_ids) == len(raw.y)


@fuzz(700)
@given(st.data())
def test_configurations(data):
    text = damage_bytes(SMALL.encode(), data.draw).decode("utf-8", errors="replace")
    preset = data.draw(st.sampled_from([None, "small"]))
    try:
        assert toml.parse(text, preset=preset).runs()
    except ConfigError as error:
        check_line(error)


@pytest.fixture(scope="module")
def plan():
    return make_plan(toml.parse(SMALL, {"server.num_rounds": 2}))


@pytest.fixture(scope="module")
def folder(plan, tmp_path_factory):
    folder = run_plan(plan, tmp_path_factory.mktemp("runs") / "complete")
    report.write(report.load(folder), folder)
    return folder


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch") / "copy"


@fuzz(400)
@given(st.data())
def test_run_folders(folder, plan, scratch, data):
    """Reads and resumes a damaged folder whose runs are complete."""
    copy = RunFolder(copy_folder(folder.path, scratch))
    damage_folder(copy.path, data.draw)
    for use in (
        lambda: report.markdown(report.accuracy_tables(report.load(copy))),
        lambda: all(run.is_complete for run in copy.runs()) and run_plan(plan, copy.path),
    ):
        try:
            use()
        except FedsimError as error:
            check_line(error)


@fuzz(300)
@given(st.data())
def test_arrays(tmp_path_factory, scratch, data):
    rng = np.random.default_rng(0)
    scratch.mkdir(exist_ok=True)
    path = scratch / "a.npz"
    ids = {"client_ids": rng.integers(3, size=20), "num_classes": 3}
    x, y = rng.normal(size=(25, 2)).astype(np.float32), np.arange(25) % 3
    np.savez(path, x=x[:20], y=y[:20], x_test=x[20:], y_test=y[20:], **ids)
    path.write_bytes(damage_bytes(path.read_bytes(), data.draw))
    check_read(lambda: read(path))


@fuzz(200)
@given(st.data())
@pytest.mark.parametrize("suffix", table_files.SUFFIXES)
def test_tables(suffix, scratch, data):
    rng = np.random.default_rng(0)
    scratch.mkdir(exist_ok=True)
    path = scratch / f"a{suffix}"
    rows = pa.table(
        {"age": rng.normal(size=25), "sex": list("mfmfx") * 5, "y": np.arange(25) % 3, "site": list("abcde") * 5}
    )
    (pq.write_table if suffix == ".parquet" else csv.write_csv)(rows, path)
    path.write_bytes(damage_bytes(path.read_bytes(), data.draw))
    check_read(lambda: split_test(table.table(0, path=str(path), label="y", client="site"), None, rng))


@fuzz(100)
@given(st.data())
@pytest.mark.parametrize("columns", [{"label": "y", "client": "site"}, {"text": "site", "client": "y", "window": 2}])
def test_hugging_face_folders(columns, tmp_path_factory, scratch, data):
    datasets = pytest.importorskip("datasets", reason="needs the extra huggingface")
    source = tmp_path_factory.getbasetemp() / "saved"
    if not source.exists():
        rows = {
            "age": [0.5 * i for i in range(25)],
            "y": [i % 3 for i in range(25)],
            "site": list("abcdefghij a b") + ["to be"] * 11,
        }
        datasets.Dataset.from_dict(rows).save_to_disk(source)
    copy = copy_folder(source, scratch)
    damage_folder(copy, data.draw)
    check_read(lambda: split_test(huggingface(0, path=str(copy), **columns), None, np.random.default_rng(0)))


@pytest.fixture(scope="module")
def leaf_files(tmp_path_factory):
    path = tmp_path_factory.mktemp("leaf")
    pixels = [[0.0, 1.0, 0.2, 0.4], [1.0, 0.0, 0.6, 0.8]]
    for part in ("train", "test"):
        write_leaf(path / part / "a.json", {"al": {"x": pixels, "y": [0, 2]}, "zoe": {"x": pixels[:1], "y": [1]}})
    write_leaf(path / "train" / "b.json.gz", {"bea": {"x": pixels, "y": [1, 1]}})
    return path


@fuzz(400)
@given(st.data())
def test_leaf_folders(leaf_files, scratch, data):
    copy = copy_folder(leaf_files, scratch)
    damage_folder(copy, data.draw)
    check_read(lambda: read_folder(copy))


@pytest.fixture(scope="module")
def prepared_files(tmp_path_factory):
    """A folder with LEAF files of a single writer, the prepared set and its decoded cache; and the prepared data."""
    path = tmp_path_factory.mktemp("prepared")
    image = lambda seed: (np.random.default_rng(seed).integers(0, 256, 784) / 255).tolist()
    for seed, part in enumerate(("train", "test")):
        write_leaf(path / "leaf" / part / "a.json", {"w1": {"x": [image(seed), image(2)], "y": [0, 61]}})
    (path / "tfds").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(path / "tfds"))
        patch.setenv("FEDSIM_CACHE_DIR", str(path / "cache"))
        prepare("femnist", path / "tfds", source=path / "leaf", progress=lambda *args: None)
        raw = prepared.load("femnist")
    return path, raw


@fuzz(100)
@given(st.data())
def test_prepared_sets(prepared_files, scratch, data):
    """A damaged prepared set raises an error or loads valid data; its records have a checksum."""
    source, _ = prepared_files
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(copy_folder(source / "tfds", scratch)))
        patch.setenv("FEDSIM_CACHE_DIR", str(scratch / "cache"))
        damage_folder(scratch / "femnist", data.draw)
        check_read(lambda: prepared.load("femnist"))


@fuzz(100)
@given(st.data())
def test_caches(prepared_files, scratch, data):
    """A damaged cache is rebuilt with the same examples."""
    source, raw = prepared_files
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(source / "tfds"))
        patch.setenv("FEDSIM_CACHE_DIR", str(copy_folder(source / "cache", scratch)))
        damage_folder(scratch, data.draw)
        loaded = prepared.load("femnist")
        for name in ("x", "y", "x_test", "y_test", "client_ids", "test_client_ids", "client_names"):
            np.testing.assert_array_equal(getattr(loaded, name), getattr(raw, name))
