"""Folders in which something is missing, damaged or in use: it is computed again, waited for, or one line says so."""

import json
import shutil

import msgspec
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import fedsim
from fedsim.engine import experiment, run_plan
from fedsim.engine.layout import Layout
from fedsim.errors import RunFolderError
from fedsim.runs import legacy
from fedsim.runs.folder import RunFolder
from tests.conftest import check_equal
from tests.engine.test_store import compute, plan_of, times_of_files

PLUGIN = """
from typing import Annotated

import jax.numpy as jnp
from fedsim import Bounds, Corruption
from fedsim.core.corrupt import example_owners


def blank(*, value: Annotated[float, Bounds(ge=0, le=1), "value of the inputs"] = 0.0):
    def apply(data, corrupted, spec, key):
        is_blank = corrupted[example_owners(data)][:, None, None, None]
        return data._replace(x=jnp.where(is_blank, jnp.asarray(value, data.x.dtype), data.x))

    return Corruption(apply, frozenset({"x"}))
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Two seeds, with models and final states."""
    records = {"record__models": True, "record__final_states": True}
    return run_plan(plan_of(**records), tmp_path_factory.mktemp("runs") / "kept")


@pytest.fixture
def folder(kept, tmp_path):
    """A copy of `kept`."""
    shutil.copytree(kept.path, tmp_path / "copy")
    return RunFolder(tmp_path / "copy")


def replan(**keys):
    return plan_of(**{"record__models": True} | keys)


@pytest.mark.parametrize(
    ("pattern", "num_rounds"),
    [("*-clients.parquet", 12), ("done.json", 0), ("models/*.npz", 0), ("checkpoints", 12)],
)
def test_what_was_deleted_is_made_again(pattern, num_rounds, folder, kept):
    """The saved states replace all but rows; without states everything is computed again."""
    (group,) = folder.groups()
    for path in sorted(group.path.glob(pattern))[:1]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if pattern == "checkpoints":
        assert compute(replan(), folder.path).computed == []  # complete without it
        (group.path / "done.json").write_text("{")
    assert not any(run.is_complete for run in folder.runs())
    assert compute(replan(), folder.path).num_rounds == num_rounds
    check_equal(folder, kept)
    assert len(list(group.path.glob("models/*.npz"))) == 2


def test_files_of_a_killed_process_are_no_rows(kept, tmp_path):
    """A group without index, rows after the checkpoint, and files that were being written."""
    folder = RunFolder(tmp_path / "out")
    compute(replan(), folder.path, calls=2)
    (group,) = folder.groups()
    (folder.path / "groups" / "fedavg-0").mkdir()
    (folder.path / "groups" / "fedavg-0" / ".group.json.node.1").write_text("{")
    for kind in ("rounds", "clients"):
        (rows,) = group.path.glob(f"00000000-00000002-*-{kind}.parquet")
        shutil.copy(rows, group.path / rows.name.replace("00000000-00000002", "00000004-00000004"))
    (group.path / ".00000006-00000006-clients.parquet.node.1").write_bytes(b"half")
    assert compute(replan(), folder.path).num_rounds == 8
    check_equal(folder, kept)
    assert not list(group.path.glob(".0*"))


@pytest.mark.parametrize(
    ("records", "num_rounds"),
    [
        ({"record__clients": "evaluated", "record__models": False}, 0),
        ({"record__data": True}, 12),
    ],
)
def test_runs_are_computed_again_only_for_what_was_not_recorded(records, num_rounds, folder, kept):
    files = times_of_files(folder.path)
    plan = replan(**records)
    assert compute(plan, folder.path).num_rounds == num_rounds
    check_equal(folder, kept)
    assert (times_of_files(folder.path) == files) == (num_rounds == 0)
    for run in folder.runs() if num_rounds else ():
        assert run.read_data()
    assert compute(plan, folder.path).computed == []


def test_rows_of_clients_are_asked_for_later(tmp_path):
    path = tmp_path / "out"
    for clients, num_rounds, num_recorded in (("none", 12, 0), ("evaluated", 12, 3), ("none", 0, 3), ("all", 12, 6)):
        assert compute(plan_of(record__clients=clients), path).num_rounds == num_rounds
        assert RunFolder(path).read("clients")["round"].n_unique() == num_recorded
    assert compute(plan_of(record__clients="evaluated"), path).computed == []
    run = RunFolder(path).runs()[0]
    with pytest.raises(RunFolderError, match=r"cannot be read: .*; run with record\.models = true"):
        run.read_model()


def test_what_is_no_run_folder_is_not_touched(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for path, message in (
        (tmp_path, "must be a run folder, but has no runs"),
        (tmp_path / "notes.txt", "must be a run folder, got a file"),
        (tmp_path / "notes.txt" / "deeper", "cannot be created: Not a directory; choose another --out"),
    ):
        with pytest.raises(RunFolderError, match=message):
            run_plan(plan_of(), path)
        with pytest.raises(RunFolderError, match=message):
            run_plan(plan_of(), path, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_folders_of_fedsim_0_3_are_read_and_not_resumed(kept, tmp_path):
    path = tmp_path / "old"
    path.mkdir()
    for kind in ("rounds", "clients", "info"):
        kept.read(kind).write_parquet(path / f"{kind}.parquet")
    runs = [run.keys for run in kept.runs()]
    manifest = {"status": "complete", "config": "seed = 1", "runs": runs, "versions": {}, "device": None}
    (path / legacy.MANIFEST).write_text(json.dumps(manifest))
    old = RunFolder(path)
    for kind in ("rounds", "clients", "info"):
        assert_frame_equal(old.read(kind), kept.read(kind), check_exact=True)
    assert [(run.keys, run.is_complete) for run in old.runs()] == [(run.keys, True) for run in kept.runs()]
    ((path, tables),) = old.read_configs().items()
    assert (path.name, tables["seed"]) == ("config.toml", 1)
    files = sorted(old.path.iterdir())
    with pytest.raises(RunFolderError, match=r"has runs of fedsim 0\.3, which cannot be resumed; choose another --out"):
        run_plan(plan_of(), old.path)
    assert sorted(old.path.iterdir()) == files
    (old.path / "rounds.parquet").unlink()
    with pytest.raises(RunFolderError, match=r"rounds\.parquet: missing; restore it, or run its config\.toml again"):
        old.read("rounds")
    pl.DataFrame({"run": ["a"]}).write_parquet(old.path / "rounds.parquet")
    with pytest.raises(RunFolderError, match=r"rounds\.parquet: broken"):
        old.read("rounds")
    (old.path / legacy.MANIFEST).write_text('{"status": "complete"}')
    with pytest.raises(RunFolderError, match="not a manifest of fedsim"):
        old.runs()


def test_a_group_keeps_its_layout(folder, tmp_path):
    """Even if others would be chosen now; more devices than there are is one line."""
    path = tmp_path / "out"
    compute(plan_of(engine__client_width=2), path, calls=2)
    compute(plan_of(), path)
    (group,) = RunFolder(path).groups()
    assert group.record.layout["client_width"] == 2
    (group,) = folder.groups()
    (group.path / "done.json").unlink()
    layout = group.record.layout | {"run_devices": 8}
    assert Layout(**layout).num_devices == 8
    group.write_record(msgspec.structs.replace(group.record, layout=layout))
    with pytest.raises(RunFolderError, match="its layout needs 8 devices, got 1; choose another --out"):
        run_plan(replan(), folder.path, allow_mismatch=True)


def test_groups_that_another_process_works_on(tmp_path, monkeypatch):
    """They are waited for, or left alone; no process computes their runs again meanwhile, or asks more of them."""
    path, rules = tmp_path / "out", ("fedavg", "arfl")
    compute(plan_of(rules=rules), path, calls=1)
    first, _ = RunFolder(path).groups()
    with first.lock.hold():
        assert first.lock.is_held()
        for keys, options in (({}, {"force": True}), ({"server__num_rounds": 8}, {})):
            with pytest.raises(RunFolderError, match=r"another process works on it \(pid .*; stop that first"):
                run_plan(plan_of(rules=rules, **keys), path, **options)
        left = compute(plan_of(rules=rules), path, wait=False)
        assert left.num_rounds == 2 * 6
    assert not first.lock.is_held()
    assert [run.is_complete for run in RunFolder(path).runs()] == [False, True, False, True]
    lock, texts = first.lock.hold(), []
    lock.__enter__()
    monkeypatch.setattr(experiment.time, "sleep", lambda seconds: lock.__exit__(None, None, None))
    monkeypatch.setattr(experiment.log, "info", lambda text: texts.append(text.partition(": ")[2]))
    run_plan(plan_of(rules=rules), path)
    assert texts[0].startswith("another process works on it (pid")
    assert texts[1:] == ["compiling", "running"]
    assert all(run.is_complete for run in RunFolder(path).runs())
    (first.path / "done.json").unlink()
    monkeypatch.setattr(experiment.time, "sleep", lambda seconds: path.rename(tmp_path / "moved"))
    with (
        first.lock.hold(),
        pytest.raises(RunFolderError, match="out: the folder was moved or deleted"),
    ):
        run_plan(plan_of(rules=rules), path)
    assert not path.exists()


def test_other_runs_of_a_resumed_group_come_from_their_configuration(tmp_path):
    """Its plug-ins may be unknown to the plan that resumes it."""
    plugin, path = tmp_path / "plugin.py", tmp_path / "out"
    plugin.write_text(PLUGIN)
    kinds = {"corruption__kind": fedsim.sweep(["noisy", f"{plugin}:blank"]), "corruption__fraction": 0.5}
    one = kinds | {"corruption__kind": "noisy"}
    both = plan_of(seeds=[0], **kinds, blank__value=0.5)
    compute(both, path, calls=1)
    with pytest.raises(RunFolderError, match="run the configuration of its other runs first"):
        run_plan(plan_of(seeds=[0], **one), path)
    compute(both, path)
    assert compute(plan_of(seeds=[0], **one), path).computed == []
