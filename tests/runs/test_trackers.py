"""Rows in Weights & Biases, written offline with its package."""

import json

import pytest

from fedsim.cli.main import main
from fedsim.runs.folder import RunFolder
from tests.cli.test_main import SMALL


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    return ["run", "small.toml", "--rounds", "2", "--out", "out"]


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


@pytest.mark.slow
def test_wandb(run, tmp_path, monkeypatch):
    """Every evaluation of every run."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    assert main([*run, "--log", "tensorboard", "wandb"]) == 0
    assert len(list((tmp_path / "out" / "tensorboard").iterdir())) == 2
    folder = RunFolder(tmp_path / "out")
    for run in folder.runs():
        identity = f"{run.group.path.name}-{run.id}"
        (file,) = (tmp_path / "out" / "wandb").glob(f"offline-run-*/run-{identity}.wandb")
        expected = [(row["round"], row["test_accuracy"]) for row in folder.read("rounds", [run]).to_dicts()]
        assert list(history(file)) == expected


def test_without_the_package(run, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    assert main([*run, "--log", "wandb"]) == 2
    assert "--log wandb: needs wandb; pip install 'fedsim-jax[wandb]'" in capsys.readouterr().err
