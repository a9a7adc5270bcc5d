"""Rows of runs in TensorBoard and in Weights & Biases, and experiments as cluster jobs."""

import json
import re
import struct
import time

import pytest

from fedsim.cli.main import main
from fedsim.config.toml import parse
from fedsim.engine import jobs as slurm_jobs
from fedsim.engine import make_plan, run_plan
from fedsim.errors import ConfigError, RunFolderError
from fedsim.runs.callbacks import Evaluation, Start
from fedsim.runs.folder import RunFolder
from fedsim.runs.trackers import tensorboard
from tests.cli.test_main import SMALL as CONFIG
from tests.conftest import Stop, check_equal, finish_jobs
from tests.engine.test_store import SMALL

TINY = f"""{SMALL}
[[sweep]]
server.aggregator = ["fedavg", "arfl"]
client.learning_rate = [0.1, 0.2]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Interrupted in the second group between two evaluations, then resumed, with the tracker."""
    path = tmp_path_factory.mktemp("runs") / "tiny"
    plan = make_plan(parse(TINY))
    with pytest.raises(KeyboardInterrupt):
        run_plan(plan, path, [tensorboard(path), Stop(4)], checkpoint_seconds=0)
    return run_plan(plan, path, [tensorboard(path)], checkpoint_seconds=0)


def read_events(folder):
    """The events of a folder's files in order: records of length (8 bytes), checksum (4), event, checksum (4)."""
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(folder.iterdir()):  # as TensorBoard does
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            yield Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]


def test_tensorboard_keeps_what_an_earlier_run_wrote_in_the_same_second(tmp_path, monkeypatch):
    """Also if other keys are swept when it resumes, which are in names."""
    monkeypatch.setattr(time, "time", lambda: 1.7e9)
    other = parse(TINY, {"client.epochs": 7}).runs()[0]
    nan = ("test_loss", "malicious_weight", "backdoor_success", "validation_accuracy", "validation_loss")
    for round_ in (0, 2):
        stream = tensorboard(tmp_path)
        configs = parse(TINY).runs() if round_ == 0 else [other, *parse(TINY).runs()[1:]]
        stream.on_start(Start("fedavg-1", (3,), configs, round_ - 1, 2, 8, {}))
        rows = {"run": [3], "round": [round_], "test_accuracy": [0.5 * round_], "corrupted_weight": [0.0]}
        rows |= {key: [float("nan")] for key in nan}
        stream.after_evaluation(Evaluation("fedavg-1", round_, {"rounds": rows}, 2, 2, 0.1, False, dict, tuple))
        stream.on_end()
    (run_folder,) = (tmp_path / "tensorboard").iterdir()
    assert len(list(run_folder.iterdir())) == 2
    assert [event.step for event in read_events(run_folder) if event.HasField("summary")] == [0, 0, 2, 2]


def test_tensorboard_has_each_run_and_round(folder):
    for run in folder.runs():
        (run_folder,) = (folder.path / "tensorboard").glob(f"{run.keys['server.aggregator']}-none*-{run.id[:8]}")
        got = {}
        for event in read_events(run_folder):
            if event.session_log.status == event.session_log.START:  # TensorBoard discards this step and later ones
                got = {step: value for step, value in got.items() if step < event.step}
            for value in event.summary.value:
                if value.tag == "test_accuracy":
                    assert event.step not in got
                    got[event.step] = pytest.approx(value.simple_value)
        rows = folder.read("rounds", [run]).to_dicts()
        assert got == {row["round"]: row["test_accuracy"] for row in rows}
    assert len(list((folder.path / "tensorboard").iterdir())) == 4


@pytest.mark.slow
def test_jobs_of_a_cluster_share_the_folder(folder, tmp_path):
    """Two processes of submitit's local executor, as a model of cluster jobs."""
    out = tmp_path / "out"
    jobs = slurm_jobs.submit(
        parse(TINY), out, {"cluster": "local"}, {"log": ["tensorboard"], "checkpoint_seconds": 0.0}
    )
    assert len(jobs) == 2  # one job per group
    finish_jobs(jobs, out)
    check_equal(RunFolder(out), folder)
    assert len(list((out / "tensorboard").iterdir())) == 4


def test_settings_of_jobs_are_checked(tmp_path):
    with pytest.raises(ConfigError, match=r"--slurm\.jobs: .* got many"):
        slurm_jobs.submit(parse(TINY), tmp_path / "a", {"cluster": "local", "jobs": "many"})
    with pytest.raises(ConfigError, match=r"--slurm\.time: must be given, in minutes"):
        slurm_jobs.submit(parse(TINY), tmp_path / "a", {"partition": "gpu"})
    with pytest.raises(ConfigError, match=r"--slurm\.cluster: must be slurm or local, got debug"):
        slurm_jobs.submit(parse(TINY), tmp_path / "a", {"cluster": "debug"})
    assert not (tmp_path / "a").exists()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RunFolderError, match="must be a run folder"):
        slurm_jobs.submit(parse(TINY), tmp_path, {"cluster": "local"})


def test_settings_of_jobs_reach_sbatch(tmp_path, monkeypatch):
    """The script that an `sbatch` of this test gets."""
    commands = {"sbatch": f"cp $1 {tmp_path}/script; echo Submitted batch job 1", "srun": "", "scontrol": ""}
    for name, line in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    settings = {"time": "60", "account": "007", "exclusive": "true", "use_srun": "false", "setup": "module load cuda"}
    slurm_jobs.submit(parse(TINY), tmp_path / "out", settings | {"jobs": "1"})
    script = (tmp_path / "script").read_text().splitlines()
    assert {"#SBATCH --time=60", "#SBATCH --account=007", "#SBATCH --exclusive", "module load cuda"} <= {*script}
    assert not any(line.startswith("srun") for line in script)


# Weights & Biases, written offline with its package


@pytest.fixture
def run(tmp_path):
    (tmp_path / "small.toml").write_text(CONFIG)
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


@pytest.mark.slow
def test_a_wrong_variable_of_wandb_is_a_one_line_error(run, monkeypatch, capsys):
    import wandb

    monkeypatch.setattr(wandb, "init", lambda **_: wandb.Settings(mode="offlin"))  # as of WANDB_MODE
    assert main([*run, "--log", "wandb"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.search(r"error: --log wandb: .*mode Input should be 'online', 'offline', .*; WANDB_MODE=offline", error)


def test_without_the_package(run, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    assert main([*run, "--log", "wandb"]) == 2
    assert "--log wandb: needs wandb; pip install 'fedsim-jax[wandb]'" in capsys.readouterr().err
