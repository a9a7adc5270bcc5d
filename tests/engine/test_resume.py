"""Interrupted, killed and shared experiments: whatever happens, the rows are those of an undisturbed one."""

import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedsim import report
from fedsim.cli.main import main
from fedsim.config.toml import parse
from fedsim.engine.experiment import Progress, run
from fedsim.engine.plan import make_plan
from fedsim.errors import RunFolderError
from fedsim.runs.folder import RunFolder
from tests.conftest import Stop, check_equal

SMALL = """
[data]
num_clients = 6
partition = "dirichlet"
[model]
hidden_sizes = [8]
[client]
batch_size = 16
[server]
cohort_size = 4
num_rounds = 9
eval_every = 2
momentum = 0.5
[[sweep]]
server.aggregator = ["fedavg", "arfl"]
corruption.kind = ["none", "shuffling"]
corruption.fraction = 0.5
seed = [0, 1]
"""


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse(SMALL, name="small"))


@pytest.fixture(scope="module")
def folder(plan, tmp_path_factory):
    return run(plan, tmp_path_factory.mktemp("runs") / "small", Progress())


def test_an_interrupted_group_goes_on_from_its_checkpoint(folder, plan, tmp_path):
    """Stopped after round 4 of the second group (of rounds 2, 4, 6, 8, 9 for each)."""
    path = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        run(plan, path, Stop(7), checkpoint_seconds=0)
    cut = RunFolder(path)
    assert cut.read_manifest()["status"] == "incomplete"
    assert [cut.finished(group) is not None for group in range(2)] == [True, False]
    with pytest.raises(RunFolderError, match="not complete"):
        report.make(cut)
    kept = {p.name: p.stat().st_mtime_ns for p in cut.parts.iterdir()}
    for kind in ("rounds", "clients"):  # what a kill between rows and checkpoint leaves
        shutil.copy(cut.parts / f"00001-00000004-{kind}.parquet", cut.parts / f"00001-00000006-{kind}.parquet")
    (cut.parts / ".00001-00000008-rounds.parquet.1").write_bytes(b"half")
    progress = Stop(-1)
    check_equal(run(plan, path, progress), folder)
    assert progress.told == [4 * 9, 4 * 4, 4 * 2, 4 * 2, 4 * 1]  # kept, restored, then 2 + 2 + 1 rounds
    assert {name: (cut.parts / name).stat().st_mtime_ns for name in kept} == kept
    assert not any(p.name.startswith(".") for p in cut.parts.iterdir())
    assert not any(cut.checkpoints(group).exists() for group in range(2))
    assert cut.read_manifest()["resumed"]
    assert not folder.read_manifest()["resumed"]


def test_a_checkpoint_whose_rows_are_gone_is_not_used(folder, plan, tmp_path):
    path = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        run(plan, path, Stop(2), checkpoint_seconds=0)
    (path / "parts" / "00000-00000002-rounds.parquet").unlink()
    check_equal(run(plan, path, Progress()), folder)


def test_a_complete_folder_is_never_shortened(folder, plan, tmp_path):
    """Without its parts a complete folder stays; a missing part of an incomplete one is made again."""
    path = tmp_path / "kept"
    shutil.copytree(folder.path, path)
    kept = RunFolder(path)
    shutil.rmtree(kept.parts)
    run(plan, path, Progress())
    assert kept.read("rounds").equals(folder.read("rounds"))
    (path / "clients.parquet").unlink()
    run(plan, path, Progress())  # everything again, as nothing is left to join
    assert kept.read("clients").equals(folder.read("clients"))
    kept.write_manifest(kept.read_manifest() | {"status": "incomplete"})
    next(kept.parts.glob("00001-*")).unlink()
    run(plan, path, Progress())
    assert kept.read("rounds").equals(folder.read("rounds"))
    (path / "summary.csv").touch()
    run(plan, path, Progress(), force=True)
    assert not (path / "summary.csv").exists()


def test_a_folder_with_something_else_is_left_alone(folder, tmp_path):
    other = make_plan(parse(SMALL, {"client.epochs": "2"}, name="small"))
    with pytest.raises(RunFolderError, match="holds results of another config"):
        run(other, folder.path, Progress())
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="not a run folder"):
        run(other, tmp_path, Progress())
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_other_versions_are_told_and_mixed_only_when_asked(folder, plan, tmp_path):
    path = tmp_path / "old"
    with pytest.raises(KeyboardInterrupt):
        run(plan, path, Stop(7))
    old = RunFolder(path)
    manifest = old.read_manifest()
    old.write_manifest(manifest | {"versions": manifest["versions"] | {"jax": "0.1"}})
    with pytest.raises(RunFolderError, match=r"versions\.jax 0\.1 there, .* add --mix to go on .* --force to start"):
        run(plan, path, Progress())
    check_equal(run(plan, path, Progress(), mix=True), folder)
    (mixed,) = old.read_manifest()["mixed"]
    assert mixed["versions"] == manifest["versions"]
    run(plan, path, Progress())  # told once


def test_other_data_and_fewer_devices_are_told(plan, tmp_path):
    path = tmp_path / "old"
    with pytest.raises(KeyboardInterrupt):
        run(plan, path, Stop(1))
    old = RunFolder(path)
    manifest = old.read_manifest()
    wider = [entry | {"layout": entry["layout"] | {"run_devices": 8}} for entry in manifest["plan"]]
    old.write_manifest(manifest | {"plan": wider})
    with pytest.raises(RunFolderError, match="was begun on 8 devices, of which there are 1 here"):
        run(plan, path, Progress(), mix=True)
    (key, dataset), *_ = plan.datasets.items()
    one_less = dataset.y_test.copy()
    one_less[0] = (one_less[0] + 1) % dataset.num_classes
    other = dataclasses.replace(plan, datasets={key: dataclasses.replace(dataset, y_test=one_less)})
    with pytest.raises(RunFolderError, match="begun with other data"):
        run(other, path, Progress(), mix=True)


def test_starting_over_may_be_interrupted(folder, plan, tmp_path, monkeypatch):
    """While old results are deleted; nothing of them becomes a result of the new configuration."""
    path = tmp_path / "kept"
    shutil.copytree(folder.path, path)
    other = make_plan(parse(SMALL, {"client.epochs": "2"}, name="small"))

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "unlink", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(other, path, Progress(), force=True)
    monkeypatch.undo()
    with pytest.raises(RunFolderError, match=r"client\.epochs"):
        run(other, path, Progress())
    check_equal(run(plan, path, Progress()), folder)


def test_a_manifest_that_was_being_written_is_nothing(plan, tmp_path):
    (tmp_path / ".manifest.json.1").write_text("{")
    with pytest.raises(KeyboardInterrupt):
        run(plan, tmp_path, Stop(1))


def test_the_same_runs_in_other_words(folder):
    """Equal runs are the same whatever blocks they come from; another order of the runs is another plan."""
    block = SMALL[SMALL.index("[[sweep]]") :]
    twice = make_plan(parse(SMALL + block, name="small"))
    assert run(twice, folder.path, Progress()).read("rounds").equals(folder.read("rounds"))
    seed = "seed = [0, 1]\n"
    reordered = parse(SMALL.replace(seed, "").replace("[[sweep]]\n", "[[sweep]]\n" + seed), name="small")
    with pytest.raises(RunFolderError, match="the order of its runs"):
        run(make_plan(reordered), folder.path, Progress())


def test_nobody_starts_over_while_another_works(plan, tmp_path):
    path = tmp_path / "busy"
    with pytest.raises(KeyboardInterrupt):
        run(plan, path, Stop(1))
    with RunFolder(path).claim(1), pytest.raises(RunFolderError, match="another process works on it"):
        run(plan, path, Progress(), force=True)
    with RunFolder(path).claim(1):
        run(plan, path, Progress(), wait=False)
    assert [RunFolder(path).finished(group) is not None for group in range(2)] == [True, False]


@pytest.fixture
def start(tmp_path):
    """Starts `fedsim run` as a process of its own, on one folder."""
    config, started = tmp_path / "small.toml", []
    config.write_text(SMALL)

    def start(*options, shell=(), **settings):
        command = [
            *shell,
            sys.executable,
            "-m",
            "fedsim.cli",
            "run",
            str(config),
            "--out",
            str(tmp_path / "out"),
            *options,
        ]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **settings)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_processes_that_share_a_folder_and_are_killed(folder, start, tmp_path):
    """Two at a time, killed at random moments; the last two end. No run is written twice, and rows are the same."""
    draw = random.Random(0)
    for _ in range(2):
        pair = [start("--checkpoint-seconds", "0") for _ in range(2)]
        deadline = time.monotonic() + 60
        while not list((tmp_path / "out" / "parts").glob("*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(draw.uniform(0, 0.5))
        for process in pair:
            process.send_signal(signal.SIGKILL)
            process.wait()
    for process in [start("--checkpoint-seconds", "0") for _ in range(2)]:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    out = RunFolder(tmp_path / "out")
    check_equal(out, folder)
    assert len(list(out.parts.iterdir())) == len(list(folder.parts.iterdir()))


def test_a_full_disk_is_one_line_and_loses_nothing(folder, start, tmp_path):
    """First no file may be larger than 4 KiB."""
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    process = start(shell=["sh", "-c", 'ulimit -f 8 && exec "$@"', "sh"], env=environment)
    _, errors = process.communicate()
    assert process.returncode == 2
    last = errors.strip().splitlines()[-1]
    assert last.startswith("fedsim: error: ")
    assert "cannot be written" in last
    assert "File too large" in last
    process = start()
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    check_equal(RunFolder(tmp_path / "out"), folder)


def test_command_line_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    config = tmp_path / "small.toml"
    config.write_text(SMALL)
    out = str(tmp_path / "out")

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedsim.experiment.run_group", interrupted)
    assert main(["run", str(config), "--out", out]) == 130
    assert f"{out} is incomplete, the same command continues it" in capsys.readouterr().err
    assert main(["run", str(config), "--out", out, "--force"]) == 130
    assert "the same command without --force continues it" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(["run", str(config), "--out", out, "--seed", "3"]) == 2
    error = capsys.readouterr().err
    assert "holds results of another config" in error
    assert "seed 0 there, 3 here" in error
