"""Run folders without any run: atomic writes, locks, indexes, files of rows."""

import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.config.components import unflatten
from fedsim.config.schema import Config
from fedsim.config.toml import parse
from fedsim.core.types import Metrics, RoundRecord, SimulationState
from fedsim.errors import RunFolderError
from fedsim.runs import locks
from fedsim.runs import writer as writer_module
from fedsim.runs.callbacks import Evaluation, Start
from fedsim.runs.checkpoints import Checkpoints
from fedsim.runs.files import write_atomically
from fedsim.runs.folder import RunFolder
from fedsim.runs.groups import GroupFolder, Record
from fedsim.runs.locks import Lock
from fedsim.runs.schemas import CLIENTS, INFO, ROUNDS, SCHEMAS, as_table
from fedsim.runs.tables import RunClients, client_rows, info_rows, round_rows
from fedsim.runs.writer import GroupWriter

RUNS = [
    {"id": f"{seed:016x}", "position": seed, "num_clients": 3, "server.num_rounds": 4, "a.x": [1], "seed": seed}
    for seed in range(3)
]
RECORD = Record(1.5, RUNS, {"run_width": 2}, [{"versions": {}}], "digest", {"a.py": "1"})


@pytest.fixture
def group(tmp_path):
    """The only group of a folder."""
    return RunFolder(tmp_path / "run").add_group("krum", RECORD)


def rounds(run, round_, **columns):
    """A row of "rounds"."""
    row = {name: [None] for name in ROUNDS}
    return {"rounds": row | {"run": [run], "round": [round_]} | {name: [value] for name, value in columns.items()}}


def write(group, first, last, *tables):
    """Writes the rows of one span; runs are positions in the index."""
    rows = pl.concat(as_table("rounds", table["rounds"]) for table in tables)
    ids = pl.Series("run", [RUNS[run]["id"] for run in rows["run"]])
    group.write_rows(first, last, {"rounds": rows.with_columns(ids)})


# Files and locks


def test_atomic_write_leaves_the_old_file_after_a_failure(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("before")

    def write_half(partial_path):
        partial_path.write_text("ha")
        raise OSError(28, "No space left on device")

    with pytest.raises(RunFolderError, match=r"a\.txt: cannot be written: No space left on device"):
        write_atomically(path, write_half)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(
            path, lambda partial_path: partial_path.write_text("ha") and (_ for _ in ()).throw(KeyboardInterrupt)
        )
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


FULL = """
import resource
import sys
from pathlib import Path

import jax
import numpy as np

from fedsim.core.types import SimulationState
from fedsim.errors import RunFolderError
from fedsim.runs.checkpoints import Checkpoints

resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))  # a disk that is full after 40 kB
weights = {str(i): np.random.default_rng(i).normal(size=10_000) for i in range(8)}
try:
    with Checkpoints(Path(sys.argv[1]), 0.0) as checkpoints:
        checkpoints.save(5, [SimulationState(weights, (), (), (), (), (), jax.random.key(0), np.int32(5))])
except RunFolderError as error:
    print(error, file=sys.stderr)
"""


@pytest.mark.slow
def test_a_full_disk_in_a_checkpoint_is_one_line(tmp_path):
    """Orbax's threads log tracebacks, and raise the error as well."""
    program = [sys.executable, "-c", FULL, str(tmp_path / "checkpoints")]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(
        r".*/checkpoints: cannot be written: File too large; free some space and repeat the command", line
    )


def test_only_one_process_holds_a_lock(tmp_path):
    path = tmp_path / "locks" / "a.lock"
    with Lock(path).hold() as first, Lock(path).hold() as second, Lock(tmp_path / "b.lock").hold() as other:
        assert (first, second, other) == (True, False, True)
    with Lock(path).hold() as again:
        assert again
    with pytest.raises(RuntimeError), Lock(path).hold():
        raise RuntimeError
    with Lock(path).hold() as after_an_error:
        assert after_an_error


HOLD = """
import sys, time
from pathlib import Path
from fedsim.runs.locks import Lock
with Lock(Path(sys.argv[1])).hold() as is_ours:
    print(is_ours, flush=True)
    time.sleep(60)
"""


def test_a_lock_ends_with_its_process_and_names_it(tmp_path):
    """Two processes: one is killed, the other gets the lock at once."""
    path = tmp_path / "locks" / "00003.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "True\n"
        with Lock(path).hold() as is_ours:
            assert not is_ours
        assert Lock(path).is_held()
        text = Lock(path).describe_holder()
        assert text.startswith(f"another process works on it (pid {holder.pid} on {platform.node()}, since 20")
        assert "silent" not in text
        then = time.time() - 3600
        os.utime(path.with_suffix(".json"), (then, then))
        assert re.search(rf"silent since 20.*; if it is dead, delete {path}$", Lock(path).describe_holder())
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert not Lock(path).is_held()
    with Lock(path).hold() as is_ours:
        assert is_ours
        assert f"pid {os.getpid()} on" in Lock(path).describe_holder()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_holder_shows_that_it_is_alive(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "HEARTBEAT_SECONDS", 0.01)
    file = tmp_path / "a.json"
    with Lock(tmp_path / "a.lock").hold():
        os.utime(file, (0, 0))
        deadline = time.monotonic() + 10
        while file.stat().st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert time.time() - file.stat().st_mtime < 10


@pytest.mark.parametrize("number", locks.NO_LOCKS)
def test_a_file_system_without_locks_is_refused(number, tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    message = r"a\.lock: this file system has no file locks .*; mount it with them"
    with pytest.raises(RunFolderError, match=message), Lock(tmp_path / "a.lock").hold():
        pass


# Indexes and rows


def test_an_index_has_what_runs_share_once(group):
    record = msgspec.structs.replace(RECORD, runs=[RUNS[0] | {"b.z": None}, RUNS[1] | {"a.x": math.inf}])
    group.write_record(record)
    text = json.loads((group.path / "group.json").read_text())
    assert text["common"] == {"num_clients": 3, "server.num_rounds": 4}
    assert text["runs"][1] == {"id": f"{1:016x}", "position": 1, "a.x": math.inf, "seed": 1}
    assert GroupFolder(group.path).record == record
    assert [{**run} for run in GroupFolder(group.path).record.runs] == record.runs


@given(data=st.data())
def test_any_damage_to_an_index_is_one_line(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("run") / "group"
    GroupFolder(path).write_record(RECORD)
    content = (path / "group.json").read_bytes()
    position = data.draw(st.sampled_from([i for i, byte in enumerate(content) if not bytes([byte]).isspace()]))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[position]))
    (path / "group.json").write_bytes(content[:position] + bytes([other]) + content[position + 1 :])
    with pytest.raises(RunFolderError, match=r"group\.json: broken: .*; delete its folder and run again"):
        _ = GroupFolder(path).record


def test_removing_a_linked_group_leaves_that_of_the_other_folder(group, tmp_path):
    other = RunFolder(tmp_path / "other")
    other.group(group.path.name).path.parent.mkdir(parents=True)
    link = other.group(group.path.name)
    link.path.symlink_to(group.path)
    link.remove()
    assert (other.groups(), len(RunFolder(tmp_path / "run").groups())) == ([], 1)


def test_a_folder_with_other_files_is_occupied(tmp_path):
    folder = RunFolder(tmp_path / "run")
    assert not folder.is_occupied()
    folder.make_directory()
    (folder.path / "slurm").mkdir()
    (folder.path / ".lock.json.node.17").write_text("{")
    with folder.lock.hold(wait=True):
        assert not folder.is_occupied()
    (folder.path / "notes.txt").touch()
    assert folder.is_occupied()
    assert RunFolder(folder.path / "notes.txt").is_occupied()


def test_a_folder_that_is_deleted_meanwhile_is_not_made_again(group):
    shutil.rmtree(group.path.parents[1])
    with pytest.raises(RunFolderError, match=r"group\.json is missing: the folder was moved or deleted during the run"):
        write(group, 0, 0, rounds(0, 0))
    assert not group.path.parent.exists()


def test_rows_are_read_in_order_of_runs_and_rounds(group):
    for round_, runs in [(2, (1, 0)), (0, (2, 1))]:
        write(group, round_, round_, *(rounds(run, round_, test_loss=np.nan, seed=run) for run in runs))
    assert group.spans() == [(0, 0), (2, 2)]
    assert group.last_round() == 2
    folder = RunFolder(group.path.parents[1])
    table = folder.read("rounds")
    assert table.schema == ROUNDS
    assert table.select("run", "round").rows() == [(0, 2), (1, 0), (1, 2), (2, 0)]
    assert table["test_loss"].null_count() == 4  # NaN becomes null
    assert folder.read("rounds", folder.runs()[1:2])["run"].to_list() == [0, 0]
    for kind, schema in (("clients", CLIENTS), ("info", INFO)):
        assert folder.read(kind).schema == schema
        assert folder.read(kind).height == 0


def test_a_span_is_written_if_all_its_tables_are(group):
    tables = {kind: pl.DataFrame(schema=SCHEMAS[kind] | {"run": pl.String}) for kind in ("rounds", "clients", "info")}
    for kind in tables:
        group.write_rows(0, 2, tables)
        next(group.path.glob(f"*-{kind}.parquet")).unlink()
        assert group.spans() == []
    group.write_rows(0, 2, tables)
    group.write_rows(4, 6, {"rounds": tables["rounds"]})
    (group.path / ".00000008-00000008-1-0-rounds.parquet.node.99").touch()
    assert group.spans() == [(0, 2), (4, 6)]
    group.delete_rows(after=2)
    assert group.spans() == [(0, 2)]
    assert len(list(group.path.glob("*.parquet*"))) == 3


def test_a_folder_that_is_read_only(group):
    """What can be read is read; a lock is one line."""
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        path = Path(parent) / "run"
        write(group, 0, 4, *(rounds(run, 4) for run in range(3)))
        with group.lock.hold():
            shutil.copytree(group.path.parents[1], path)
        for entry in [path, *path.rglob("*")]:
            entry.chmod(0o555)
        user = os.geteuid()
        try:
            os.seteuid(user or 65534)
            folder = RunFolder(path)
            assert folder.read("rounds").height == 3
            assert folder.groups()[0].lock.is_held()  # another user's process works on it
            with (
                pytest.raises(RunFolderError, match="lock: cannot be written: Permission denied"),
                folder.lock.hold(wait=True),
            ):
                pass
        finally:
            os.seteuid(user)
            for entry in [path, *path.rglob("*")]:
                entry.chmod(0o755)


# The callback GroupWriter


class OnRequest(Checkpoints):
    """Checkpoints that are due when a test says so; keeps the spans that are written when each is saved."""

    def __init__(self, group):
        super().__init__(group.checkpoints, 0)
        self.due, self._group, self.saved = False, group, {}

    def is_due(self):
        return self.due

    def save(self, round_, states):
        self.saved[round_] = self._group.spans()


def test_rows_wait_for_a_checkpoint_or_the_end_of_the_group(group, monkeypatch):
    checkpoints = OnRequest(group)
    writer = GroupWriter(group, checkpoints)
    writer.on_start(Start("fedavg-1", (7, 8, 9), parse("").runs() * 10, -1, 0, 2, {}))

    def evaluate(round_, due=False):
        checkpoints.due = due
        tables = rounds(7, round_)
        writer.after_evaluation(Evaluation("fedavg-1", round_, tables, 2, round_, 0.1, False, dict, tuple))
        return group.spans()

    assert [evaluate(round_) for round_ in (0, 2)] == [[], []]
    assert evaluate(4, due=True) == [(0, 4)]
    assert evaluate(6) == [(0, 4)]
    monkeypatch.setattr(writer_module, "MAX_BYTES", 0)
    assert evaluate(8) == [(0, 4), (6, 8)]  # too many to keep in memory
    monkeypatch.undo()
    assert evaluate(10) == [(0, 4), (6, 8)]
    writer.on_end()  # also after an error or Ctrl-C
    assert group.spans() == [(0, 4), (6, 8), (10, 10)]
    assert group.read("rounds")["round"].to_list() == [0, 2, 4, 6, 8, 10]
    assert checkpoints.saved == {4: [(0, 4)]}  # the rows are on disk first


def test_checkpoints_keep_their_interval_and_only_the_newest_remains(tmp_path):
    import jax

    state = lambda number: SimulationState(
        {"w": jax.numpy.full((2, 3), number, float)},
        aggregator=jax.numpy.zeros((2, 0)),  # a state without elements
        **dict.fromkeys(("optimizer", "attack", "client_states", "server_state"), ()),
        key=jax.random.split(jax.random.key(1)),
        round=number,
    )
    with Checkpoints(tmp_path / "a", seconds=0) as checkpoints:
        assert checkpoints.latest_round() is None
        assert not (tmp_path / "a").exists()
        for number in (2, 4):
            assert checkpoints.is_due()
            checkpoints.save(number, [state(jax.numpy.int32(number))])
    with Checkpoints(tmp_path / "a", seconds=1000) as checkpoints:
        assert not checkpoints.is_due()
    with Checkpoints(tmp_path / "a", seconds=0) as checkpoints:
        assert checkpoints.latest_round() == 4
        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), state(jax.numpy.int32(0)))
        (restored,) = checkpoints.restore(4, [shapes])
        assert restored.variables["w"].tolist() == [[4.0] * 3] * 2
        assert restored.aggregator.shape == (2, 0)
        assert jax.random.key_data(restored.key).tolist() == jax.random.key_data(state(0).key).tolist()
        (tmp_path / "a" / "4").rename(tmp_path / "a" / "5")
        with pytest.raises(RunFolderError, match=r"broken: .*; delete it"):
            checkpoints.restore(4, [shapes])


# From arrays to rows


def test_rows_of_clients_by_hand():
    """Two runs of three clients, two in each round; after the second round alpha of all clients is known."""
    records = RoundRecord(
        client_ids=np.asarray([[[0, 1], [2, 0]], [[0, 2], [1, 0]]]),
        losses=np.asarray([[[0.5, np.nan], [0.3, 0.2]], [[1.0, 2.0], [3.0, 4.0]]], np.float32),
        weights=np.asarray([[[1.0, 0.0], [0.5, 0.5]], [[0.25, 0.75], [1.0, 0.0]]], np.float32),
        valid=np.asarray([[[True, False], [True, True]], [[True, True], [True, True]]]),
        info={},
    )
    alpha = np.asarray([[0.2, 0.3, 0.5], [0.0, 1.0, 0.0]], np.float32)
    num_examples = np.asarray([[4, 5, 6]] * 2)
    corrupted = np.asarray([[True, False, False]] * 2)
    metrics = Metrics(np.zeros((2, 4)), np.asarray([[1, 2, 0, 9], [3, 1, 0, 9]]), np.asarray([[2, 2, 0, 9]] * 2))
    # The second run has an attack, and corruption in round 4 only: client 0 has more examples before.
    delays = np.asarray([[0, 9], [4, 4]])
    clients = RunClients(np.asarray([7, 5, 6]), num_examples, delays, corrupted, corrupted & [[False], [True]])
    columns = client_rows([7, 8], 4, records, metrics, alpha, clients, last_only=False)
    rows = {(r[0], r[1], r[2]): r[3:] for r in zip(*(columns[name] for name in CLIENTS), strict=True)}
    nan = pytest.approx(np.nan, nan_ok=True)
    f = pytest.approx
    assert rows == {
        # count, loss, alpha, weight, corrupted, malicious, test accuracy
        (7, 3, 0): (4, f(0.5), nan, 1, True, False, nan),
        (7, 3, 1): (5, nan, nan, nan, False, False, nan),
        (7, 4, 0): (4, f(0.2), f(0.2), 0.5, True, False, 0.5),
        (7, 4, 1): (5, nan, f(0.3), nan, False, False, 1),
        (7, 4, 2): (6, f(0.3), 0.5, 0.5, False, False, nan),
        (8, 3, 0): (7, 1, nan, 0.25, True, True, nan),
        (8, 3, 2): (6, 2, nan, 0.75, False, False, nan),
        (8, 4, 0): (4, 4, 0, 0, True, True, 1.5),
        (8, 4, 1): (5, 3, 1, 1, False, False, 0.5),
        (8, 4, 2): (6, nan, 0, nan, False, False, nan),
    }
    last = client_rows([7, 8], 4, records, metrics, alpha, clients, last_only=True)
    keys = set(zip(last["run"], last["round"], last["client_id"], strict=True))
    assert keys == {key for key in rows if key[1] == 4}


run_clients = partial(RunClients, np.asarray([5, 6, 7]), np.asarray([[5, 6, 7]]), np.asarray([[0, 9]]))
METRICS = Metrics(np.asarray([5.0]), np.asarray([7]), np.asarray([10]))


def record_of(client_ids, weights):
    """The rounds of one run, all of whose reports are valid."""
    ids = np.asarray([client_ids])
    return RoundRecord(ids, np.zeros(ids.shape), np.asarray([weights]), np.ones(ids.shape, bool), info={})


def test_corrupted_weight_is_over_all_rounds_since_the_last_row():
    records = record_of([[0, 1], [1, 2], [0, 2]], [[0.4, 0.6], [1.0, 0.0], [0.0, 0.0]])  # the last round is skipped
    corrupted = np.asarray([[False, True, True]])
    rows = round_rows([Config()], [0], 3, METRICS, records, run_clients(corrupted, corrupted))
    assert rows["corrupted_weight"] == pytest.approx([(0.6 + 1.0) / 2])
    assert rows["test_accuracy"] == pytest.approx([0.7])
    assert rows["test_loss"] == pytest.approx([0.5])


def test_malicious_clients_are_counted_apart_from_corrupted_ones():
    records = record_of([[0, 1, 2]], [[0.5, 0.3, 0.2]])
    clients = run_clients(np.asarray([[False, True, False]]), np.asarray([[False, False, True]]))
    keys = {"server.aggregator": "trimmed_mean", "trimmed_mean.num_byzantine": 1}
    attack = {"attack.kind": "ipm", "attack.fraction": 0.3}

    def row(**changes):
        config = unflatten({**keys, **attack, **changes})
        rows = round_rows([config], [0], 1, METRICS, records, clients)
        return [rows[name].item() for name in ("corrupted_weight", "malicious_weight", "byzantine_excess")]

    assert row() == pytest.approx([0.3, 0.2, 1])
    assert row(**{"server.num_byzantine": "malicious"}) == pytest.approx([0.3, 0.2, 0])
    assert row(**{"server.weighting": "arfl"}) == pytest.approx([0.3, 0.2, 0])  # which leaves corrupted clients out
    assert row(**{"attack.kind": "none", "attack.fraction": None}) == pytest.approx([0.3, np.nan, 1], nan_ok=True)


def test_a_diverged_model_has_no_backdoor_success():
    none = run_clients(*[np.zeros((1, 3), bool)] * 2)
    success = Metrics(np.asarray([np.nan]), np.asarray([10]), np.asarray([10]))
    assert np.isnan(round_rows([unflatten({})], [0], 0, METRICS, None, none, success)["backdoor_success"]).all()


def test_rows_of_info_by_hand():
    info = {"b": np.asarray([[1, 2], [3, 4]]), "a": np.asarray([[True, False], [True, True]])}
    columns = info_rows([5, 6], 9, info)
    rows = list(zip(*(columns[name] for name in INFO), strict=True))
    assert sorted(rows) == [
        (5, 8, "a", 1), (5, 8, "b", 1), (5, 9, "a", 0), (5, 9, "b", 2),
        (6, 8, "a", 1), (6, 8, "b", 3), (6, 9, "a", 1), (6, 9, "b", 4),
    ]  # fmt: skip


def test_rows_of_skipped_rounds_are_called_diverged():
    """No client has a weight since the last row; before the first round there is none to have one."""
    clients = run_clients(*[np.asarray([[False, True, True]])] * 2)
    diverged = lambda records: round_rows([Config()], [0], 3, METRICS, records, clients)["diverged"].tolist()
    assert diverged(record_of([[0, 1], [1, 2]], [[0.0, 0.0], [0.0, 0.0]])) == [True]
    assert diverged(record_of([[0, 1], [1, 2]], [[0.0, 0.0], [1.0, 0.0]])) == diverged(None) == [False]
