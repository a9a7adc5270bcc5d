"""What comes out beside the tables while an experiment runs, and experiments as jobs."""

import json
import struct

import pytest

from fedsim.cli.main import main
from fedsim.config.toml import parse
from fedsim.engine import slurm
from fedsim.engine.experiment import Progress, run
from fedsim.engine.plan import make_plan
from fedsim.errors import ConfigError
from fedsim.runs.folder import RunFolder
from fedsim.runs.streams import TensorBoard
from tests.conftest import Stop, check_equal

TINY = """
[data]
num_clients = 4
[model]
hidden_sizes = [4]
[server]
cohort_size = 4
num_rounds = 6
eval_every = 2
[[sweep]]
server.aggregator = ["fedavg", "arfl"]
seed = [0, 1]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Interrupted in the second group between two evaluations, then run to its end, with both sinks."""
    path = tmp_path_factory.mktemp("runs") / "tiny"
    plan = make_plan(parse(TINY))
    for progress in (Stop(5), Progress()):
        try:
            run(plan, path, progress, checkpoint_seconds=0, sinks=[TensorBoard(path)])
        except KeyboardInterrupt:
            continue
    return RunFolder(path)


def test_json_lines_are_the_rows_once_each(folder):
    lines = [json.loads(line) for path in sorted(folder.path.glob("log/*.jsonl")) for line in path.open()]
    rows = folder.read("rounds").to_pylist()
    key = lambda row: (row["run"], row["round"])
    assert sorted(map(key, lines)) == sorted(map(key, rows))
    for line, row in zip(sorted(lines, key=key), rows, strict=True):
        assert line == pytest.approx(row)


def read_events(folder):
    """The events of a folder's files in order: records of length (8 bytes), checksum (4), event, checksum (4)."""
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            yield Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]


def test_tensorboard_has_each_run_and_round(folder):
    rows = folder.read("rounds").to_pylist()
    for run_folder in sorted((folder.path / "tensorboard").iterdir()):
        got = {}
        for event in read_events(run_folder):
            if event.session_log.status == event.session_log.START:  # TensorBoard forgets this step and later ones
                got = {step: value for step, value in got.items() if step < event.step}
            for value in event.summary.value:
                if value.tag == "test_accuracy":
                    assert event.step not in got
                    got[event.step] = pytest.approx(value.simple_value)
        run_ = int(run_folder.name.split("-")[0])
        assert got == {row["round"]: row["test_accuracy"] for row in rows if row["run"] == run_}
    assert len(list((folder.path / "tensorboard").iterdir())) == 4


def test_jobs_of_a_cluster_share_the_folder(folder, tmp_path):
    """Two processes by submitit's local executor, as jobs of a cluster would."""
    import submitit

    out = tmp_path / "out"
    jobs = slurm.submit(parse(TINY), out, {"cluster": "local"}, {"tensorboard": True, "checkpoint_seconds": 0.0})
    assert len(jobs) == 2  # a job a group
    for job in jobs:
        submitit.LocalJob(out / "slurm", job).result()
    check_equal(RunFolder(out), folder)
    assert len(list((out / "tensorboard").iterdir())) == 4


def test_mistakes_with_jobs_are_one_line(tmp_path, capsys):
    with pytest.raises(ConfigError, match=r"--slurm\.jobs: expected a number"):
        slurm.submit(parse(TINY), tmp_path / "a", {"cluster": "local", "jobs": "many"})
    config = tmp_path / "tiny.toml"
    config.write_text(TINY)
    wrong = {
        ("--slurm.partition", "gpu"): "--slurm",
        ("--slurm.cluster", "local", "--slurm.partitoin", "gpu"): "--slurm",
        ("--slurm.cluster", "local", "--force"): "--force: not with --slurm",
        ("--slurm.cluster", "local", "--corruption.kind", "shufling"): "corruption.kind",
    }
    for arguments, start in wrong.items():
        assert main(["run", str(config), "--out", str(tmp_path / "b"), *arguments]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"fedsim: error: {start}")
        assert error.count("\n") == 1
