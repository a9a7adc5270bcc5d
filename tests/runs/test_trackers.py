"""Rows in Weights & Biases and in MLflow, written offline with their packages."""

import json
import sys

import pytest

from fedsim.cli.main import main
from fedsim.runs import trackers
from fedsim.runs.folder import RunFolder
from tests.cli.test_main import SMALL


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    return ["run", "small.toml", "--rounds", "2", "--out", "out"]


def rows(path):
    return RunFolder(path).read("rounds").to_dicts()


def test_mlflow(run, tmp_path, monkeypatch):
    """Every evaluation of every run, once; the same command again adds nothing, and with --force new runs."""
    monkeypatch.setitem(sys.modules, "alembic", None)  # as with mlflow-skinny
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:1")
    assert trackers._default_store() is None
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_ALLOW_FILE_STORE"):
        monkeypatch.setenv(name, "")  # restored at the end, also where the tracker sets it
        monkeypatch.delenv(name)
    from mlflow import MlflowClient

    run[-1] = "own'er"  # which a filter of MLflow would have to escape
    assert main([*run, "--log", "mlflow"]) == 0
    assert main([*run, "--log", "mlflow"]) == 0
    client = MlflowClient(tracking_uri=f"file://{tmp_path}/mlruns")
    tracked_runs = client.search_runs([client.get_experiment_by_name("fedsim").experiment_id])
    assert len(tracked_runs) == 2
    for tracked_run in tracked_runs:
        assert tracked_run.info.status == "FINISHED"
        assert tracked_run.data.params["client.learning_rate"] == "0.1"
        number = int(tracked_run.data.tags["fedsim.run"])
        history = client.get_metric_history(tracked_run.info.run_id, "test_accuracy")
        expected = [(r["round"], r["test_accuracy"]) for r in rows(tmp_path / run[-1]) if r["run"] == number]
        assert sorted((point.step, point.value) for point in history) == expected
    assert main([*run, "--log", "mlflow", "--force"]) == 0
    assert len(client.search_runs([client.get_experiment_by_name("fedsim").experiment_id])) == 4


def records(data, block=32768):
    """The records of a LevelDB log after a header of 7 bytes: checksum, length and kind (4 + 2 + 1 bytes) and data."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        if block - place % block < 7:
            place += block - place % block
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a complete record, or its last fragment
            yield whole
            whole = b""


def history(file):
    """(round, accuracy) of each line of a run's file, as its package reads it."""
    from wandb.proto.wandb_internal_pb2 import Record

    for data in records(file.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        values = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        if values:
            yield values["_step"], values["test_accuracy"]


def test_wandb(run, tmp_path, monkeypatch):
    """Every evaluation of every run."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    assert main([*run, "--log", "wandb"]) == 0
    identity = RunFolder(tmp_path / "out").read_manifest()["id"]
    for number in range(2):
        (file,) = (tmp_path / "out" / "wandb").glob(f"offline-run-*/run-{identity}-{number:05}.wandb")
        expected = [(r["round"], r["test_accuracy"]) for r in rows(tmp_path / "out") if r["run"] == number]
        assert list(history(file)) == expected


@pytest.mark.parametrize("tracker", ["wandb", "mlflow"])
def test_without_the_package(tracker, run, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, tracker, None)
    assert main([*run, "--log", tracker]) == 2
    assert f"--log {tracker}: needs {tracker}; pip install 'fedsim-jax[{tracker}]'" in capsys.readouterr().err
