"""A run folder is a store of runs: whatever commands come, only missing runs and rounds are computed, and rows stay."""

import dataclasses
import shutil
from contextlib import nullcontext, suppress

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsim
from fedsim.config.toml import parse
from fedsim.engine import environment, experiment, make_plan, run_plan
from fedsim.engine.store import open_folder
from fedsim.errors import RunFolderError
from fedsim.runs.folder import RunFolder
from tests.conftest import Stop, check_equal

SMALL = """
name = "small"
data = {num_clients = 6, num_train = 120, num_test = 60, partition = "dirichlet"}
mlp.hidden_sizes = [4]
client.batch_size = 8
server = {aggregator = "fedavg", cohort_size = 4, num_rounds = 6, eval_every = 2}
sgd.momentum = 0.5
engine = {client_width = 4, run_width = 1}
"""
SEEDS, RULES = (0, 1, 2), ("fedavg", "arfl")


def plan_of(seeds=(0, 1), rules=("fedavg",), **keys):
    """A plan; dots of further keys are written as two underscores."""
    keys = {key.replace("__", "."): value for key, value in keys.items()}
    return make_plan(parse(SMALL, {"seed": fedsim.sweep(seeds), "server.aggregator": fedsim.sweep(rules)} | keys))


def compute(plan, path, calls=0, **options) -> Stop:
    """Runs the plan into the folder, up to the `calls`th evaluation; returns what was computed, as was announced."""
    options_of_folder = {name: value for name, value in options.items() if name != "wait"}
    announced = open_folder(RunFolder(path), plan, **options_of_folder, is_dry=True)
    observer, opened = Stop(calls), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "open_folder", lambda *args: opened.append(open_folder(*args)) or opened[-1])
        with pytest.raises(KeyboardInterrupt) if calls else nullcontext():
            run_plan(plan, path, [observer], checkpoint_seconds=0, **options)
    assert groups_of(announced) == groups_of(opened[0])
    return observer


def groups_of(plan) -> set:
    """The runs of each group, with their rounds, and its layout."""
    return {(tuple(group.runs), group.configs[0].server.num_rounds, group.layout) for group in plan.groups}


def times_of_files(path) -> dict[str, int]:
    """When each file of a group was written, except its lock and its index."""
    files = (file for file in (path / "groups").glob("*/*.*") if file.name not in ("lock.json", "group.json"))
    return {str(file.relative_to(path)): file.stat().st_mtime_ns for file in files}


def by_id(folder) -> dict:
    return {run.id: run for run in folder.runs()}


def rows_by_round(folder) -> set:
    return set(folder.read("rounds").select("aggregator", "seed", "round", "test_loss").rows())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All seeds and rules, computed by a single command, with models."""
    return run_plan(plan_of(SEEDS, RULES, record__models=True), tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture
def folder(whole, tmp_path):
    """A copy of `whole`."""
    shutil.copytree(whole.path, tmp_path / "copy")
    return RunFolder(tmp_path / "copy")


some = lambda values: st.sets(st.sampled_from(values), min_size=1).map(sorted)


@pytest.mark.slow
@settings(max_examples=6, derandomize=True, database=None)
@given(commands=st.lists(st.tuples(some(SEEDS), some(RULES), st.integers(0, 8)), min_size=1, max_size=3))
def test_after_any_commands_that_are_stopped_anywhere_everything_is_computed_once(whole, tmp_path_factory, commands):
    """Each is stopped during an evaluation, which is then lost; 0, or more than there are: it is not stopped."""
    path, computed = tmp_path_factory.mktemp("store") / "out", 0
    for seeds, rules, calls in [*commands, (SEEDS, RULES, 0)]:
        observer = Stop(calls)
        with suppress(KeyboardInterrupt):
            run_plan(plan_of(seeds, rules, record__models=True), path, [observer], checkpoint_seconds=0)
        is_stopped = calls and len(observer.computed) == calls
        computed += observer.num_rounds - (observer.computed[-1][1] if is_stopped else 0)
        assert rows_by_round(RunFolder(path)) <= rows_by_round(whole)
    assert computed == 6 * 6
    folder = RunFolder(path)
    check_equal(folder, whole)
    for run in folder.runs():
        expected = by_id(whole)[run.id].read_model()
        for name, array in run.read_model().items():
            np.testing.assert_array_equal(array, expected[name])
    assert not list(path.glob("groups/*/checkpoints"))


@pytest.mark.parametrize(
    "more",
    [
        {"data__seed": fedsim.sweep([0, 1])},
        {"client__batch_size": 16, "client__schedule": "cosine", "name": "other"},
        {"server__num_rounds": 5},  # not a multiple of eval_every
    ],
    ids=["splits", "configuration", "odd"],
)
def test_other_runs_are_added(more, folder, whole):
    before = times_of_files(folder.path)
    plan = plan_of(**more)
    num_new = sum(config.server.num_rounds for config in plan.runs) - 12 * ("data__seed" in more)
    assert compute(plan, folder.path).num_rounds == num_new
    assert times_of_files(folder.path).items() >= before.items()
    assert rows_by_round(folder) >= rows_by_round(whole)
    assert len(list((folder.path / "configs").iterdir())) == 2
    assert compute(plan, folder.path).computed == []
    assert [run.id for run in folder.runs()][:6] == [run.id for run in whole.runs()]  # new ones come last


def test_halves_of_a_sweep_are_united_by_copying_their_groups(whole, tmp_path):
    """They have one seed in common. The folders may be renamed."""
    for name, seeds in (("a", (0, 1)), ("b", (1, 2))):
        compute(plan_of(seeds, RULES), tmp_path / name)
    union = (tmp_path / "a").rename(tmp_path / "union")
    for group in (tmp_path / "b" / "groups").iterdir():
        shutil.copytree(group, union / "groups" / group.name)
    check_equal(RunFolder(union), whole)
    assert compute(plan_of(SEEDS, RULES), union).computed == []


def test_a_longer_run_is_not_deleted_for_a_later_shorter_one(tmp_path):
    """They came together by copying, and record the same."""
    folder = RunFolder(tmp_path / "long")
    compute(plan_of([0]), folder.path)
    compute(plan_of([0], server__num_rounds=2), tmp_path / "short")
    for group in (tmp_path / "short" / "groups").iterdir():
        shutil.copytree(group, folder.path / "groups" / group.name)
    assert compute(plan_of([0, 3]), folder.path).num_rounds == 6
    assert [run.keys["server.num_rounds"] for run in folder.runs()] == [6] * 2
    assert sorted(group.num_rounds for group in folder.groups()) == [2, 6, 6]


def test_more_rounds_that_are_stopped_are_left_to_the_command_for_them(tmp_path):
    path = tmp_path / "out"
    compute(plan_of([0], server__num_rounds=2), path)
    compute(plan_of([0]), path, calls=2)
    assert compute(plan_of([0], server__num_rounds=2), path).num_rounds == 0
    (run,) = RunFolder(path).runs()
    assert run.is_complete
    assert (run.group.num_rounds, run.latest.num_rounds) == (2, 6)
    assert compute(plan_of([0]), path).resumed


def test_a_run_of_two_groups_gets_the_rounds_of_its_own(tmp_path):
    compute(plan_of([0, 1], server__num_rounds=2, record__final_states=True), tmp_path)
    compute(plan_of([1], server__num_rounds=2, record__final_states=True), tmp_path, force=True)
    blocks = [{"seed": [1], "server.num_rounds": [6]}, {"seed": [0], "server.num_rounds": [4]}]
    run_plan(make_plan(dataclasses.replace(plan_of([0]).experiment, sweep=tuple(blocks))), tmp_path)
    assert {run.keys["seed"]: run.keys["server.num_rounds"] for run in RunFolder(tmp_path).runs()} == {0: 4, 1: 6}


def test_rounds_that_another_process_adds_before_a_group_starts(whole, tmp_path, monkeypatch):
    """It is stopped after some of them. The process that opened the folder for fewer rounds leaves them alone."""
    path, right = tmp_path / "out", experiment.open_folder

    def add_rounds(*arguments):
        plan = right(*arguments)
        monkeypatch.undo()
        compute(plan_of(SEEDS, RULES), path, calls=3)
        return plan

    monkeypatch.setattr(experiment, "open_folder", add_rounds)
    run_plan(plan_of(SEEDS, RULES, server__num_rounds=2), path, checkpoint_seconds=0)
    assert 4 in compute(plan_of(SEEDS, RULES), path).resumed
    check_equal(RunFolder(path), whole)


@pytest.mark.parametrize("has_states", [True, False])
def test_more_rounds(has_states, whole, tmp_path):
    """They continue the saved final states; without these the runs are computed again, and shown until they are."""
    path = tmp_path / "out"
    compute(plan_of(SEEDS, RULES, server__num_rounds=2, record__final_states=has_states), path)
    before, files = rows_by_round(RunFolder(path)), times_of_files(path)
    seconds = [group.read_completion().seconds_running for group in RunFolder(path).groups()]
    longer = plan_of(SEEDS, RULES, record__final_states=has_states)
    stopped = compute(longer, path, calls=2)
    assert rows_by_round(RunFolder(path)) >= before
    resumed = compute(longer, path)
    assert (stopped.resumed, resumed.resumed) == (([2], [4, 2]) if has_states else ([], [2]))
    assert stopped.num_rounds - 6 + resumed.num_rounds == 6 * (4 if has_states else 6)
    check_equal(RunFolder(path), whole)
    assert (times_of_files(path).keys() >= {name for name in files if "done" not in name}) == has_states
    assert len(list((path / "groups").iterdir())) == 2
    if has_states:
        longer_seconds = [group.read_completion().seconds_running for group in RunFolder(path).groups()]
        assert all(after > before for after, before in zip(longer_seconds, seconds, strict=True))
    assert compute(plan_of(SEEDS, RULES, server__num_rounds=4), path).computed == []  # there are more
    check_equal(RunFolder(path), whole)


def test_more_rounds_of_single_runs_are_rounds_of_their_group(tmp_path):
    """Which keeps its final states, whichever run asks for the rounds, and gets the most that are asked for."""
    compute(plan_of(server__num_rounds=2, record__final_states=True), tmp_path)
    compute(plan_of([0], server__num_rounds=4), tmp_path)
    assert compute(plan_of([1], server__num_rounds=6), tmp_path).resumed == [4]
    blocks = [{"seed": [0], "server.num_rounds": [10]}, {"seed": [1], "server.num_rounds": [8]}]
    compute(make_plan(dataclasses.replace(plan_of([0]).experiment, sweep=tuple(blocks))), tmp_path)
    folder = RunFolder(tmp_path)
    assert [(run.keys["server.num_rounds"], run.is_complete) for run in folder.runs()] == [(10, True)] * 2
    assert folder.read("rounds").filter(pl.col("round") == 10)["seed"].to_list() == [0, 1]


def test_models_belong_to_a_number_of_rounds(folder):
    with pytest.raises(RunFolderError, match="have 6 rounds, and models are those after the last one"):
        run_plan(plan_of(server__num_rounds=4, record__models=True), folder.path)


def test_a_sweep_over_rounds_is_one_run(whole, tmp_path):
    """Of the largest number; with a schedule they are several runs."""
    path = tmp_path / "out"
    assert compute(plan_of(SEEDS, RULES, server__num_rounds=fedsim.sweep([6, 2])), path).num_rounds == 6 * 6
    check_equal(RunFolder(path), whole)
    compute(plan_of([0], server__num_rounds=fedsim.sweep([6, 2]), client__schedule="cosine"), path)
    assert len(RunFolder(path).runs()) == 6 + 2


def test_force_computes_the_named_runs_again(folder, whole):
    """Old rows are shown until new ones are complete; then groups without other runs are deleted.

    The clock of the computer that wrote the old ones was wrong.
    """
    for group in folder.groups():
        group.write_record(msgspec.structs.replace(group.record, created=4e9))
    before, groups = rows_by_round(folder), len(folder.groups())
    assert compute(plan_of(SEEDS), folder.path, calls=2, force=True).num_rounds == 2 * 6
    assert rows_by_round(folder) == before
    assert all(run.is_complete for run in folder.runs())
    assert len(folder.groups()) == groups + 1
    old = {run.group.path for run in folder.runs() if run.keys["server.aggregator"] == "fedavg"}
    resumed = compute(plan_of(SEEDS), folder.path)
    assert (resumed.resumed, resumed.num_rounds) == ([2], 3 * 4)
    assert not any(path.exists() for path in old)
    assert len(folder.groups()) == groups
    check_equal(folder, whole)
    assert compute(plan_of([1]), folder.path, force=True).num_rounds == 6
    assert len(folder.groups()) == groups + 1  # the old group has other runs
    check_equal(folder, whole)


def test_what_a_later_group_does_not_record_is_kept(folder, whole, tmp_path):
    """Folders are united by copying their groups."""
    other = run_plan(plan_of(SEEDS), tmp_path / "other")
    for group in other.groups():
        shutil.copytree(group.path, folder.path / "groups" / group.path.name)
    models = {path.name for path in folder.path.glob("groups/*/models/*")}
    assert len(models) == len(whole.runs())
    compute(plan_of([7]), folder.path)
    assert all(run.read_model() for run in folder.runs() if run.keys["seed"] != 7)
    assert compute(plan_of(SEEDS, record__models=True), folder.path).computed == []
    assert {path.name for path in folder.path.glob("groups/*/models/*")} == models
    assert len(folder.groups()) == len(whole.groups()) + len(other.groups()) + 1


def test_an_interrupted_force_resumes_with_a_changed_plug_in(folder, monkeypatch):
    """Other seeds keep their old rows."""
    for group in folder.groups():
        group.write_record(msgspec.structs.replace(group.record, files={"a.py": "old"}))
    monkeypatch.setattr("fedsim.engine.factories.plugin_files", lambda runs: {"a.py": "new"})
    with pytest.raises(RunFolderError, match=r"a\.py has changed since its runs were computed"):
        run_plan(plan_of([1]), folder.path)
    compute(plan_of([1]), folder.path, calls=2, force=True)
    assert compute(plan_of([1]), folder.path).resumed == [2]
    assert compute(plan_of([1]), folder.path).computed == []


def test_no_run_of_a_group_goes_on_with_an_edited_plugin(tmp_path):
    """The command does not ask for the run of the plug-in, which has the same group."""
    code = """import jax.numpy as jnp
from fedsim import Corruption
from fedsim.core.corrupt import example_owners

def mine():
    new = lambda data, corrupted, *_: data._replace(y=jnp.where(corrupted[example_owners(data)], 0, data.y))
    return Corruption(new, frozenset({"y"}))
"""
    (tmp_path / "mine.py").write_text(code)
    keys = {"corruption__fraction": 0.5, "record__final_states": True}
    folder = run_plan(
        plan_of([0], corruption__kind=fedsim.sweep(["flipping", "mine.py:mine"]), **keys), tmp_path / "run"
    )
    (tmp_path / "mine.py").write_text(code.replace(" 0,", " 1,"))
    longer = plan_of([0], corruption__kind="flipping", server__num_rounds=8, **keys)
    with pytest.raises(RunFolderError, match=r"mine\.py:mine has changed since its runs were computed"):
        run_plan(longer, folder.path)
    assert all(run.is_complete for run in RunFolder(folder.path).runs())
    assert compute(longer, folder.path, allow_mismatch=True).computed == [(round_, 2) for round_ in (2, 4, 6, 8)]


def test_rows_of_groups_that_were_replaced_are_an_error(folder):
    results = fedsim.Result(folder.path)
    assert results.runs
    shutil.rmtree(next((folder.path / "groups").iterdir()))
    with pytest.raises(RunFolderError, match="computed again since they were loaded"):
        len(results.rounds)


@pytest.mark.parametrize("text", ["data", "source", "versions", "plug-in"])
def test_changes_need_allow_mismatch(text, folder, whole, monkeypatch):
    """Complete runs keep their rows; half-done ones start anew if data or plug-ins have changed, else they resume."""
    incomplete = {"seeds": SEEDS, "client__batch_size": 16}
    plan = plan_of(**incomplete)
    compute(plan, folder.path, calls=2)
    if text == "data":
        (key, dataset), *_ = plan.datasets.items()
        labels = dataset.y_test.copy()
        labels[0] = (labels[0] + 1) % dataset.num_classes
        plan = dataclasses.replace(plan, datasets={key: dataclasses.replace(dataset, y_test=labels)})
        message = "the data set has changed since its runs were computed; restore it, add --allow-mismatch"
    elif text == "source":
        monkeypatch.setitem(environment.source_digests(), "aggregators", "edited")
        message = r"code has changed .*\(fedsim/aggregators\); add --allow-mismatch to compute missing ones"
        with pytest.raises(RunFolderError, match="--allow-mismatch to show its rows"):
            run_plan(plan_of(SEEDS, RULES), folder.path)
        assert compute(plan_of(SEEDS, RULES), folder.path, allow_mismatch=True).computed == []
    elif text == "versions":
        monkeypatch.setattr(environment, "PACKAGES", ("numpy",))
        message = r"versions\.jax was .*, is not set; .* add --allow-mismatch to compute missing ones all the same"
        assert compute(plan_of(SEEDS, RULES), folder.path).computed == []  # nothing is missing
    else:
        monkeypatch.setattr("fedsim.engine.factories.plugin_files", lambda runs: {"a.py": "new"})
        for group in folder.groups():
            group.write_record(msgspec.structs.replace(group.record, files={"a.py": "old"}))
        message = r"a\.py has changed since its runs were computed"
    with pytest.raises(RunFolderError, match=message):
        run_plan(plan, folder.path)
    if text in ("data", "plug-in"):  # other seeds would be averaged with those of the old one
        other = dataclasses.replace(plan_of([7], client__batch_size=16), datasets=plan.datasets)
        with pytest.raises(RunFolderError, match=message):
            run_plan(other, folder.path)
    resumed = compute(plan, folder.path, allow_mismatch=True)
    assert resumed.resumed == ([] if text in ("data", "plug-in") else [2])
    assert all(run.is_complete for run in folder.runs())
    assert rows_by_round(folder) >= rows_by_round(whole)
    assert len(folder.groups()) == 3
    if text == "source":  # what the folder has of the new code says nothing about older rows
        with pytest.raises(RunFolderError, match="--allow-mismatch to show its rows"):
            run_plan(plan_of(SEEDS, RULES), folder.path)
