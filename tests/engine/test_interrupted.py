"""Interrupted, killed and shared experiments: whatever happens, the rows are those of an undisturbed one."""

import itertools
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.engine import environment, run_plan
from fedsim.engine.experiment import resume_round
from fedsim.runs.folder import RunFolder
from tests.conftest import check_equal
from tests.engine.test_store import SMALL, compute, plan_of


@given(cuts=st.sets(st.integers(1, 12)), lost=st.sets(st.integers(0, 12)), eval_every=st.integers(1, 4), data=st.data())
def test_a_run_resumes_only_after_unbroken_rows(cuts, lost, eval_every, data):
    """From the checkpoint if no row up to it is missing; else from the start. Files are lost, each of several rows."""
    edges = [0, *sorted(cuts), 13]
    evaluations = [range(first, next_) for first, next_ in itertools.pairwise(edges)]
    spans = [(eval_every * part[0], eval_every * part[-1]) for part in evaluations]
    kept = [span for number, span in enumerate(spans) if number not in lost]
    checkpoint = data.draw(st.none() | st.sampled_from([last for _, last in spans]))
    written = {round_ for first, last in kept for round_ in range(first, last + 1, eval_every)}
    needed = set() if checkpoint is None else set(range(0, checkpoint + 1, eval_every))
    expected = -1 if checkpoint is None or not needed <= written else checkpoint
    assert resume_round(kept, checkpoint, eval_every) == expected


def test_all_that_a_run_carries_is_in_its_checkpoint(tmp_path):
    """States of clients, the server's control, an optimizer's moments, known losses: the rest is the same."""
    carried = {"client__algorithm": "scaffold", "server__optimizer": "adam", "server__learning_rate": 0.01}
    corruption = {"corruption__kind": "shuffling", "corruption__fraction": 0.5}
    plan = plan_of(rules=("arfl",), **carried, **corruption)
    whole = run_plan(plan, tmp_path / "whole")
    compute(plan, tmp_path / "cut", calls=3)
    assert compute(plan, tmp_path / "cut").resumed == [4]
    check_equal(RunFolder(tmp_path / "cut"), whole)


@pytest.mark.parametrize(
    "change", [lambda path: path.write_text("y = 1"), lambda path: path.rename(path.parent / "b.py")]
)
def test_a_digest_of_source_sees_contents_and_names(tmp_path, change):
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "a.py").write_text("x = 1")
    (tmp_path / "notes.txt").write_text("no code")
    before = environment.folder_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("still none")
    assert environment.folder_digest(tmp_path) == before
    change(tmp_path / "deeper" / "a.py")
    assert environment.folder_digest(tmp_path) != before


# Processes of their own, which run into one folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run_plan(plan_of((0, 1, 2), ("fedavg", "arfl")), tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture
def start(tmp_path):
    """Starts `fedsim run` of both rules with some seeds."""
    config, started = tmp_path / "small.toml", []
    config.write_text(SMALL)

    def start(*seeds, shell=(), **settings):
        sweep = ["--sweep.aggregator", "fedavg", "arfl", "--sweep.seed", *map(str, seeds)]
        command = [*shell, sys.executable, "-m", "fedsim", "run", str(config), "--checkpoint-seconds", "0", *sweep]
        command += ["--out", str(tmp_path / "out")]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **settings)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stderr.close()


def wait_for_rows(path, seconds=120):
    deadline = time.monotonic() + seconds
    while not list(path.glob("groups/*/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.mark.slow
def test_processes_that_add_seeds_to_one_folder_and_are_killed(whole, start, tmp_path):
    """One is killed soon after the first rows. Its command, beside that of the other seed, does the rest."""
    out = tmp_path / "out"
    killed = start(0, 1)
    wait_for_rows(out)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    for process in [start(2), start(1, 0)]:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    folder = RunFolder(out)
    check_equal(folder, whole)
    assert len(folder.groups()) == 4  # no run was computed twice


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_loses_nothing(whole, start, tmp_path):
    """First no file may be larger than 4 KiB."""
    environment_ = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    process = start(0, 1, 2, shell=["sh", "-c", 'ulimit -f 8 && exec "$@"', "sh"], env=environment_)
    _, errors = process.communicate()
    assert process.returncode == 2
    last = errors.strip().splitlines()[-1]
    assert last.startswith("fedsim: error: ")
    assert "cannot be written: File too large" in last
    compute(plan_of((0, 1, 2), ("fedavg", "arfl")), tmp_path / "out")
    check_equal(RunFolder(tmp_path / "out"), whole)


@pytest.mark.slow
def test_ctrl_c_ends_a_process_at_once_and_the_same_command_resumes(whole, start, tmp_path):
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a shell's background jobs do not
    process = start(0, 1, 2, preexec_fn=heed)
    wait_for_rows(tmp_path / "out")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "is incomplete, the same command resumes it" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    compute(plan_of((0, 1, 2), ("fedavg", "arfl")), tmp_path / "out")
    check_equal(RunFolder(tmp_path / "out"), whole)
