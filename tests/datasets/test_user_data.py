"""User data in runs from the command line, and percentiles of the accuracy over clients."""

import csv
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from fedsim.cli.main import main
from fedsim.datasets import arrays, table
from fedsim.datasets.huggingface import huggingface
from fedsim.engine.environment import dataset_digest
from fedsim.errors import ConfigError, DataError
from fedsim.runs.folder import RunFolder
from tests.datasets.build import build_dataset

RUN = [
    *("--data.partition", "natural", "--mlp.hidden-sizes", "[4]", "--server.cohort-size", "3"),
    *("--server.num-rounds", "2", "--server.eval-every", "1", "--client.epochs", "1", "--server.aggregator", "fedavg"),
]


@pytest.fixture
def npz(tmp_path, no_figures):
    """Six training clients. 10 test examples belong to one of them, 10 to a client without training examples."""
    rng = np.random.default_rng(0)
    y, y_test = rng.integers(0, 3, 60), rng.integers(0, 3, 20)
    inputs = lambda labels: rng.normal(size=(len(labels), 4)) + 2 * np.eye(3, 4)[labels]
    parts = {"x": inputs(y), "y": y, "x_test": inputs(y_test), "y_test": y_test}
    ids = {"client_ids": np.asarray(list("fbdace"))[np.arange(60) % 6], "test_client_ids": np.repeat(["b", "z"], 10)}
    np.savez(tmp_path / "mine.npz", **parts, **ids)
    return tmp_path / "mine.npz", parts | ids


def with_labels(parts, change):
    """The arrays with training and test labels changed."""
    return parts | {name: change(parts[name]) for name in ("y", "y_test")}


def test_run_on_arrays_with_clients(npz, tmp_path, capsys):
    path, parts = npz
    dataset = build_dataset(f'data = {{name = "arrays", partition = "natural"}}\narrays.path = "{path}"')
    assert dataset.name == "mine"
    assert dataset.train.num_examples.tolist() == [10] * 6
    np.testing.assert_allclose(dataset.train.x[:10], parts["x"][parts["client_ids"] == "a"], rtol=1e-6)
    assert dataset.test_clients.tolist() == [1] * 10 + [6] * 10
    assert dataset.num_test_clients == 7
    (note,) = dataset.notes
    assert note.startswith("mine: 10 of 20 test examples belong to clients without training examples; check test_clie")
    (tmp_path / "config.toml").write_text("")
    command = ["run", f"{tmp_path}/config.toml", "--data.name", "arrays", "--arrays.path", f"{path}", *RUN]
    assert main([*command, "--out", f"{tmp_path}/out"]) == 0
    for row in RunFolder(tmp_path / "out").read("rounds").to_dicts():
        # For two clients of the same size, the median and the average of p10 and p90 equal the mean.
        assert row["accuracy_p50"] == pytest.approx(row["test_accuracy"])
        assert (row["accuracy_p10"] + row["accuracy_p90"]) / 2 == pytest.approx(row["test_accuracy"])
        assert row["accuracy_p10"] <= row["accuracy_p90"]
    with (tmp_path / "out" / "summary.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["accuracy_p50_mean"]) == pytest.approx(float(row["final_accuracy_mean"]), abs=1e-4)


def test_a_column_of_labels_is_one_label_per_example(npz):
    """What a data frame's `df[["y"]].values` gives, also for root and validation data."""
    path, parts = npz
    text = f'data = {{name = "arrays", root_examples = 9, validation_fraction = 0.2}}\narrays.path = "{path}"'
    digests = set()
    for change in (lambda y: y, lambda y: y[:, None]):
        np.savez(path, **with_labels(parts, change))
        digests.add(dataset_digest(build_dataset(f"{text}\nserver.cohort_size = 3")))
    assert len(digests) == 1


def test_a_regression_is_called_one(npz, capsys):
    """Whole numbers are a regression if num_classes = 0 says so; classes must be one for each example."""
    path, parts = npz
    (path.parent / "config.toml").write_text("")
    dry_run = ["run", f"{path.parent}/config.toml", *RUN, "--data.name", "arrays", "--arrays.path", f"{path}"]
    np.savez(path, **with_labels(parts, lambda y: y.astype(float)), num_classes=0)
    assert main([*dry_run, "--dry-run"]) == 0
    assert "mine: regression, since its labels are numbers" in capsys.readouterr().out
    np.savez(path, **with_labels(parts, lambda y: np.stack([y, y], 1)))
    assert main([*dry_run, "--dry-run"]) == 2
    assert re.search(r"model\.name: mlp does not fit mine: labels: each .*\(\).*got \(2,\)", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"client_ids": np.zeros((60, 2))}, r"client ids must be \[M\]"),
        ({"x": np.zeros((60, 4), np.uint8)}, "training inputs are uint8, but test inputs are float32"),
        ({"x": np.full((60, 4), 8e299)}, r"inputs must be finite, got NaN or infinity as float32 \(the largest is 3"),
        ({"x": np.asarray(3)}, r"inputs must be \[M, \.\.\.\]"),
        ({"inputs": ["vector"]}, r"mine\.npz: inputs must be a text, got <U6 \(1,\)"),
        ({"num_classes": 2.5}, r"mine\.npz: num_classes must be an integer, got float64 \(\)"),
        ({"client_ids": np.asarray(["a", None] * 30, object)}, r"Object arrays .* save it as .*astype"),
        ({"y": None, "y_train": np.zeros(60, int)}, r"must have the arrays x and y, got no y but x, .*y_train"),
    ],
)
def test_inconsistent_arrays_raise(npz, change, message):
    path, parts = npz
    np.savez(path, **{name: a for name, a in (parts | change).items() if a is not None})
    with pytest.raises(DataError, match=message):
        build_dataset(f'data.name = "arrays"\narrays.path = "{path}"')


def test_broken_npz_files_raise(tmp_path):
    for name, content in [("text.npz", b"hello"), ("cut.npz", b"PK\x03\x04broken")]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=rf"{name}: not an \.npz file"):
            arrays.read(tmp_path / name)
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(DataError, match=r"single\.npy: .* got a single array"):
        arrays.read(tmp_path / "single.npy")
    with pytest.raises(DataError, match=r"none\.npz: no such file"):
        arrays.read(tmp_path / "none.npz")
    with pytest.raises(ConfigError, match=r"arrays\.path: "):
        arrays.arrays(0)
    with pytest.raises(ConfigError, match=r"^~no-user/data: no such home folder; write the whole path"):
        arrays.arrays(0, path="~no-user/data")


def test_texts_in_an_npz_file(tmp_path):
    x, y = np.zeros((4, 9), np.int8), np.linspace(0, 1, 4)
    np.savez(tmp_path / "mine.npz", x=x, y=y, x_test=x, y_test=y, inputs="text")
    raw = arrays.arrays(0, path=str(tmp_path / "mine.npz"))
    assert (raw.inputs, raw.num_classes) == ("text", 0)


def test_the_folder_that_one_is_in_has_a_name(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    np.save("x.npy", np.zeros((4, 2)))
    np.save("y.npy", np.asarray([0, 1, 0, 1]))
    Path("rows.csv").write_text("a,y\n" + "1,u\n2,v\n" * 9)
    assert arrays.arrays(0, path=".").name == table.table(0, path=".", label="y").name == "mine"


FACTORIES = """
from typing import Annotated
import numpy as np
from fedsim.datasets import RawDataset

def line(seed: int, *, slope: Annotated[float, "of the line"] = 1.0):
    x = np.random.default_rng(seed).normal(size=(60, 2))
    y = slope * x[:, 0]
    return RawDataset("line", x[:40], y[:40], x[40:], y[40:], 0, "vector")

def halves(raw, num_clients, rng):
    return (raw.y > np.median(raw.y)).astype(int)
"""


def test_a_plug_in_data_set_and_partition(tmp_path):
    """Regression targets, with a setting; float64 becomes float32."""
    path = tmp_path / "plugin.py"
    path.write_text(FACTORIES)
    dataset = build_dataset(f"""
        data = {{name = "{path}:line", partition = "{path}:halves", num_clients = 2}}
        line.slope = 3.0
        server.cohort_size = 2
    """)
    assert dataset.train.num_examples.tolist() == [20, 20]
    assert dataset.train.x.dtype == dataset.train.y.dtype == np.float32
    np.testing.assert_allclose(dataset.train.y, 3 * dataset.train.x[:, 0], rtol=1e-6)
    assert dataset.train.y[:20].max() < dataset.train.y[20:].min()


def test_hugging_face_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"needs the package datasets; pip install 'fedsim-jax\[huggingface\]'"):
        huggingface(0, path="mine", label="y")
