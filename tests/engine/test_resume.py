"""Interrupted, killed and shared experiments: whatever happens, the rows are those of an undisturbed one."""

import dataclasses
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedsim
from fedsim import report
from fedsim.config.toml import parse
from fedsim.engine import make_plan, manifest, run_plan
from fedsim.engine.experiment import resume_round
from fedsim.errors import RunFolderError
from fedsim.runs.checkpoints import Checkpoints
from fedsim.runs.folder import RunFolder
from fedsim.runs.parts import Span
from tests.conftest import Stop, check_equal

SMALL = """
[data]
num_clients = 6
partition = "dirichlet"
[mlp]
hidden_sizes = [8]
[client]
batch_size = 16
[server]
cohort_size = 4
num_rounds = 9
eval_every = 2
[sgd]
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
    return run_plan(plan, tmp_path_factory.mktemp("runs") / "small")


def interrupt(plan, path, calls, **options) -> RunFolder:
    """What is there of the plan after an interruption at the `calls`th report of rounds done, before these are kept."""
    with pytest.raises(KeyboardInterrupt):
        run_plan(plan, path, [Stop(calls)], **options)
    return RunFolder(path)


def times_of_parts(folder) -> dict[str, int]:
    """When each file of rows was written."""
    parts = folder.path / "parts"
    return {str(path.relative_to(parts)): path.stat().st_mtime_ns for path in parts.glob("*/*")}


@given(cuts=st.sets(st.integers(1, 12)), lost=st.sets(st.integers(0, 12)), eval_every=st.integers(1, 4), data=st.data())
def test_a_run_goes_on_only_behind_unbroken_rows(cuts, lost, eval_every, data):
    """From the checkpoint if no row up to it is missing; else from the start. Files are lost, each of several rows."""
    edges = [0, *sorted(cuts), 13]
    evaluations = [range(first, next_) for first, next_ in itertools.pairwise(edges)]
    spans = [Span(eval_every * part[0], eval_every * part[-1]) for part in evaluations]
    kept = [span for number, span in enumerate(spans) if number not in lost]
    checkpoint = data.draw(st.none() | st.sampled_from([span.last for span in spans]))
    written = {round_ for span in kept for round_ in range(span.first, span.last + 1, eval_every)}
    needed = set() if checkpoint is None else set(range(0, checkpoint + 1, eval_every))
    expected = None if checkpoint is None or not needed <= written else checkpoint
    assert resume_round(kept, checkpoint, eval_every) == expected


def test_an_interrupted_group_goes_on_from_its_checkpoint(folder, plan, tmp_path):
    """Stopped after round 4 of the second group (of rounds 2, 4, 6, 8, 9 for each)."""
    path = tmp_path / "cut"
    cut = interrupt(plan, path, 8, checkpoint_seconds=0)
    assert cut.read_manifest()["status"] == "incomplete"
    assert [cut.read_finished(group) is not None for group in range(2)] == [True, False]
    (note,) = report.make(cut).incomplete
    assert "4 of 8 runs are complete" in note
    kept, second = times_of_parts(cut), cut.parts(1).path
    assert cut.parts(1).spans() == [(0, 2), (4, 4)]
    for kind in ("rounds", "clients"):  # what a kill between rows and checkpoint leaves
        (path_of_rows,) = second.glob(f"00000004-*-{kind}.parquet")
        shutil.copy(path_of_rows, str(path_of_rows).replace("00000004-00000004", "00000006-00000006"))
    (second / ".00000008-00000008-rounds.parquet.node.1").write_bytes(b"half")
    observer = Stop(-1)
    check_equal(run_plan(plan, path, [observer]), folder)
    assert observer.rounds == [4 * 9, 4 * 4, 4 * 2, 4 * 2, 4 * 1]  # kept, restored, then 2 + 2 + 1 rounds
    assert times_of_parts(cut).items() >= kept.items()
    assert not any(p.name.startswith(".") for p in second.iterdir())
    assert not any(cut.checkpoints(group).exists() for group in range(2))
    assert cut.read_manifest()["resumed"]
    assert not folder.read_manifest()["resumed"]


@pytest.mark.parametrize(
    "carried",
    [
        {"client.algorithm": "scaffold", "server.aggregator": "fedavg"},
        {"server.optimizer": "adam", "server.learning_rate": 0.01, "server.aggregator": "arfl"},
    ],
    ids=["scaffold", "adam"],
)
def test_all_that_a_run_carries_is_in_its_checkpoint(carried, tmp_path):
    """What clients remember, the server's control, an optimizer's moments: the rest is the same bit for bit."""
    plan = make_plan(parse(SMALL, {"corruption.kind": fedsim.sweep(["shuffling"]), "server.num_rounds": 6} | carried))
    whole = run_plan(plan, tmp_path / "whole")
    cut = interrupt(plan, tmp_path / "cut", 3, checkpoint_seconds=0)
    with Checkpoints(cut.checkpoints(0), 0) as checkpoints:
        assert checkpoints.latest_round() == 4
    observer = Stop(-1)
    check_equal(run_plan(plan, cut.path, [observer]), whole)
    assert observer.rounds == [2 * 4, 2 * 2]


def test_a_checkpoint_whose_rows_are_gone_is_not_used(folder, plan, tmp_path):
    cut = interrupt(plan, tmp_path / "cut", 2, checkpoint_seconds=0)
    next(cut.parts(0).path.glob("00000000-00000002-*-rounds.parquet")).unlink()
    again = interrupt(plan, cut.path, 3, checkpoint_seconds=0)
    with Checkpoints(again.checkpoints(0), 0) as checkpoints:
        assert checkpoints.latest_round() == 4  # though there was a checkpoint of a later round
    observer = Stop(-1)
    check_equal(run_plan(plan, cut.path, [observer]), folder)
    assert observer.rounds[0] == 4 * 4


def test_a_complete_folder_is_never_shortened(folder, plan, tmp_path):
    """Without its parts a complete folder stays; a missing part of an incomplete one is made again."""
    path = tmp_path / "kept"
    shutil.copytree(folder.path, path)
    kept = RunFolder(path)
    shutil.rmtree(kept.path / "parts")
    run_plan(plan, path)
    check_equal(kept, folder)
    (path / "clients.parquet").unlink()
    run_plan(plan, path)  # everything again, as nothing is left to join
    check_equal(kept, folder)
    kept.write_manifest(kept.read_manifest() | {"status": "incomplete"})
    next(kept.parts(1).path.iterdir()).unlink()
    observer = Stop(-1)
    run_plan(plan, path, [observer])
    assert observer.rounds[0] == 4 * 9  # the first group is kept
    check_equal(kept, folder)


def test_starting_over_leaves_nothing_of_before(folder, plan, tmp_path):
    path = tmp_path / "over"
    shutil.copytree(folder.path, path)
    for name in ("summary.csv", "claims.md", "models/00000.npz", "figures/a.png", "tensorboard/x", "log/00009.jsonl"):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).touch()
    (path / "notes.txt").write_text("mine")
    started = interrupt(plan, path, 1, force=True)
    left = {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file() and not {"parts", "locks"} & {*p.parts}}
    assert left >= {"notes.txt", "manifest.json", "config.toml"}
    assert left <= {"notes.txt", "manifest.json", "config.toml", "log/00000.jsonl"} | {
        name for name in left if name.startswith("checkpoints/")
    }
    assert started.read_manifest()["status"] == "incomplete"
    assert started.parts(1).spans() == []


def test_a_folder_with_something_else_is_left_alone(folder, tmp_path):
    other = make_plan(parse(SMALL, {"client.epochs": 2}, name="small"))
    with pytest.raises(RunFolderError, match="holds results of another config"):
        run_plan(other, folder.path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="must be a run folder"):
        run_plan(other, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_other_versions_need_allow_mismatch(folder, plan, tmp_path):
    old = interrupt(plan, tmp_path / "old", 7)
    before = old.read_manifest()
    old.write_manifest(before | {"versions": before["versions"] | {"jax": "0.1"}})
    with pytest.raises(RunFolderError, match=r"versions\.jax was 0\.1, is .*; add --allow-mismatch .* --force"):
        run_plan(plan, old.path)
    check_equal(run_plan(plan, old.path, allow_mismatch=True), folder)
    (mismatch,) = old.read_manifest()["mismatches"]
    assert mismatch["versions"] == before["versions"]
    run_plan(plan, old.path)  # accepted once


def test_a_new_key_is_at_its_default(folder, plan, tmp_path):
    """A folder from before the key was added is resumed, unless the key has another value now."""
    old = interrupt(plan, tmp_path / "old", 7)
    before = old.read_manifest()

    def forget(name):
        runs = [{key: value for key, value in run.items() if key != name} for run in before["runs"]]
        old.write_manifest(before | {"runs": runs})

    forget("sgd.momentum")  # 0.5 here, and 0 by default
    with pytest.raises(RunFolderError, match="holds results of another config"):
        run_plan(plan, old.path)
    forget("client.clip")
    check_equal(run_plan(plan, old.path), folder)


def test_changed_code_needs_allow_mismatch(folder, plan, tmp_path, monkeypatch):
    """Also if the folder is complete."""
    complete, old = tmp_path / "complete", tmp_path / "old"
    shutil.copytree(folder.path, complete)
    interrupt(plan, old, 1)
    monkeypatch.setitem(manifest.source_digests(), "aggregators", "edited")
    for path, verb in ((complete, "show its rows"), (old, "resume")):
        with pytest.raises(RunFolderError, match=rf"\(fedsim/aggregators\); add --allow-mismatch to {verb}"):
            run_plan(plan, path)
        check_equal(run_plan(plan, path, allow_mismatch=True), folder)
    (mismatch,) = RunFolder(old).read_manifest()["mismatches"]
    assert mismatch["source"]["aggregators"] == "edited"


@pytest.mark.parametrize(
    "change", [lambda path: path.write_text("y = 1"), lambda path: path.rename(path.parent / "b.py")]
)
def test_a_digest_of_source_sees_contents_and_names(tmp_path, change):
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "a.py").write_text("x = 1")
    (tmp_path / "notes.txt").write_text("no code")
    before = manifest.folder_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("still none")
    assert manifest.folder_digest(tmp_path) == before
    change(tmp_path / "deeper" / "a.py")
    assert manifest.folder_digest(tmp_path) != before


def test_other_data_and_fewer_devices_are_refused(plan, tmp_path):
    old = interrupt(plan, tmp_path / "old", 1)
    before = old.read_manifest()
    wider = [entry | {"layout": entry["layout"] | {"run_devices": 8}} for entry in before["plan"]]
    old.write_manifest(before | {"plan": wider})
    with pytest.raises(RunFolderError, match="need 8 devices, got 1"):
        run_plan(plan, old.path, allow_mismatch=True)
    (key, dataset), *_ = plan.datasets.items()
    one_less = dataset.y_test.copy()
    one_less[0] = (one_less[0] + 1) % dataset.num_classes
    other = dataclasses.replace(plan, datasets={key: dataclasses.replace(dataset, y_test=one_less)})
    with pytest.raises(RunFolderError, match="data set has changed"):
        run_plan(other, old.path, allow_mismatch=True)


def test_starting_over_may_be_interrupted(folder, plan, tmp_path, monkeypatch):
    """While old results are deleted; nothing of them becomes a result of the new configuration."""
    path = tmp_path / "kept"
    shutil.copytree(folder.path, path)
    other = make_plan(parse(SMALL, {"client.epochs": 2}, name="small"))

    def interrupted(self, missing_ok=False):
        if not missing_ok:  # a result, not a temporary file
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "unlink", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_plan(other, path, force=True)
    monkeypatch.undo()
    with pytest.raises(RunFolderError, match=r"client\.epochs"):
        run_plan(other, path)
    check_equal(run_plan(plan, path), folder)


def test_a_manifest_that_was_being_written_is_nothing(plan, tmp_path):
    (tmp_path / ".manifest.json.1").write_text("{")
    interrupt(plan, tmp_path, 1)


def test_the_same_runs_in_other_words(folder):
    """Equal runs are the same whatever blocks they come from, in whatever order."""
    block = SMALL[SMALL.index("[[sweep]]") :]
    twice = make_plan(parse(SMALL + block, name="small"))
    check_equal(run_plan(twice, folder.path), folder)
    seed = "seed = [0, 1]\n"
    reordered = parse(SMALL.replace(seed, "").replace("[[sweep]]\n", "[[sweep]]\n" + seed), name="small")
    check_equal(run_plan(make_plan(reordered), folder.path), folder)


def test_nobody_starts_over_while_another_works(plan, tmp_path):
    busy = interrupt(plan, tmp_path / "busy", 1)
    with busy.lock_group(1), pytest.raises(RunFolderError, match="another process works on it"):
        run_plan(plan, busy.path, force=True)
    with busy.lock_group(1):
        assert busy.is_locked(1)
        run_plan(plan, busy.path, wait=False)
    assert not busy.is_locked(1)
    assert [busy.read_finished(group) is not None for group in range(2)] == [True, False]


@pytest.fixture
def start(tmp_path):
    """Starts `fedsim run` as a process of its own, on one folder."""
    config, started = tmp_path / "small.toml", []
    config.write_text(SMALL)

    def start(*options, shell=(), **settings):
        out = str(tmp_path / "out")
        command = [*shell, sys.executable, "-m", "fedsim.cli", "run", str(config), "--out", out, *options]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **settings)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def wait_for_rows(path, seconds=120):
    deadline = time.monotonic() + seconds
    while not list((path / "parts").glob("*/*")) and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.mark.slow
def test_processes_that_share_a_folder_and_are_killed(folder, start, tmp_path):
    """Two are killed soon after the first rows, two others end. No run is written twice, and rows are the same."""
    pair = [start("--checkpoint-seconds", "0") for _ in range(2)]
    wait_for_rows(tmp_path / "out")
    for process in pair:
        process.send_signal(signal.SIGKILL)
        process.wait()
    for process in [start("--checkpoint-seconds", "0") for _ in range(2)]:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    out = RunFolder(tmp_path / "out")
    check_equal(out, folder)
    for kind in ("rounds", "clients", "info"):
        assert out.read_parts(kind).equals(folder.read_parts(kind))


@pytest.mark.slow
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


@pytest.mark.slow
def test_ctrl_c_ends_a_process_at_once_and_the_same_command_goes_on(folder, start, tmp_path):
    heeding = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a shell's background jobs do not
    process = start("--checkpoint-seconds", "0", preexec_fn=heeding)
    wait_for_rows(tmp_path / "out")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "is incomplete, the same command resumes it" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    assert run_plan(make_plan(parse(SMALL, name="small")), tmp_path / "out").read_manifest()["status"] == "complete"
    check_equal(RunFolder(tmp_path / "out"), folder)
