"""The benchmarks for accelerators start where there is little but JAX, go on, and do what fedsim does."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import fedsim
from fedsim.engine import build

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPT = FOLDER / "accelerator.py"
QUICKSTART = FOLDER.parent / "configs" / "quickstart.toml"
MISSING = "msgspec sklearn pyarrow tensorflow_datasets pandas matplotlib psutil filelock platformdirs".split()  # noqa: SIM905
COMMON = {"device": "cpu", "num_devices": 1, "tiny": True}


def run_bare(*arguments):
    """The command where packages that only `import fedsim` does without cannot be imported."""
    words = [str(SCRIPT), *map(str, arguments)]
    program = (
        f"import runpy, sys; sys.modules.update(dict.fromkeys({MISSING!r})); sys.path.insert(0, {str(FOLDER)!r});"
        f"sys.argv = {words!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.fixture
def module(monkeypatch):
    """Imports a module of the benchmarks; afterwards none of them is left imported."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """The folder that `prepare` wrote the digits into."""
    folder = tmp_path_factory.mktemp("accelerator")
    command = [sys.executable, SCRIPT, "prepare", folder, "--only", "digits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_it_measures_without_the_rest_and_goes_on(digits, tmp_path):
    out = tmp_path / "lines.jsonl"
    options = "--tiny", "--parts", "a", "c", "--data", digits, "--out", out
    done = run_bare(*options, "--only", "quickstart arfl", "c/W3")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["name"] for line in lines] == ["a/quickstart arfl"] * 2 + ["c/W3"] * 3
    assert all(line["numbers"]["passed"] for line in lines[:2])
    assert [line["settings"]["way"] for line in lines[2:]] == ["in turn", "vmap", "map, 1 at a time"]
    assert lines[-1].keys() >= {"part", "settings", "device", "platform", "versions", "command"}
    again = run_bare(*options, "--only", "quickstart arfl", "c/W3")
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("done before") == 2
    assert out.read_text().splitlines() == [json.dumps(line) for line in lines]


def test_what_is_missing_is_skipped(tmp_path):
    done = run_bare("--tiny", "--parts", "a", "--only", "quickstart", "--data", tmp_path, "--out", tmp_path / "lines")
    assert done.returncode == 0, done.stderr
    assert "skipped: digits: not all parts are in" in done.stdout


def test_prepared_digits_are_the_quickstarts(digits, module):
    found = module("accelerator_parts.arrays").load("digits", [digits])
    wanted = build.dataset(fedsim.load(QUICKSTART).runs()[0])
    jax.tree.map(np.testing.assert_array_equal, found.train, wanted.train)
    np.testing.assert_array_equal(found.x_test, wanted.x_test)
    np.testing.assert_array_equal(found.y_test, wanted.y_test)
    assert found.spec == wanted.spec


def test_a_data_set_in_parts_is_whole_or_missing(module, monkeypatch, tmp_path):
    arrays = module("accelerator_parts.arrays")
    monkeypatch.setattr(arrays, "SLICE_BYTES", 500)
    monkeypatch.setattr(arrays, "MOST_BYTES", 1500)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (40, 6, 5, 3), np.uint8), rng.integers(0, 4, 40)
    wanted = fedsim.from_arrays(x, y, np.arange(40) % 7, x[:9], y[:9], num_classes=4)
    parts = arrays.save(wanted, "pictures", tmp_path)
    assert len(parts) > 2
    found = arrays.load("pictures", [tmp_path])
    jax.tree.map(np.testing.assert_array_equal, found.train, wanted.train)
    np.testing.assert_array_equal(found.x_test, wanted.x_test)
    parts[1].unlink()
    with pytest.raises(arrays.MissingData, match="pictures"):
        arrays.load("pictures", [tmp_path])


def test_works_are_those_of_the_other_benchmarks(module):
    work, workloads = module("accelerator_parts.work"), module("workloads")
    ours, theirs = work.load("W3", []), workloads.load("W3")
    jax.tree.map(np.testing.assert_array_equal, ours.dataset.train, theirs.dataset.train)
    np.testing.assert_array_equal(work.images(3, 4).train.x, workloads.images(3, 4).train.x)
    for name in ("module", "cohort_size", "batch_size", "learning_rate", "epochs"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_plain_networks_have_the_same_values(module):
    plain = module("accelerator_parts.plain").PLAIN
    for network, shape in ((fedsim.models.Cifar10CNN(10), (32, 32, 3)), (fedsim.models.FemnistCNN(62), (28, 28, 1))):
        x = jax.random.uniform(jax.random.key(0), (2, *shape))
        variables = network.init(jax.random.key(1), x)
        found = plain[type(network)](network.num_classes).apply(variables, x)
        np.testing.assert_allclose(found, network.apply(variables, x), rtol=1e-4, atol=1e-5)


def test_a_torn_line_is_no_result(module, tmp_path):
    ledger = module("accelerator_parts.ledger")
    path = tmp_path / "lines.jsonl"
    first = ledger.Ledger(path, COMMON)
    first.write("b/one", [ledger.Result({}, {"seconds": 1.23456})])
    first.write("b/two", [], error="out of memory")
    with path.open("a") as file:
        file.write('{"name": "b/three", "numb')
    second = ledger.Ledger(path, COMMON)
    assert [second.done(f"b/{name}") for name in ("one", "two", "three")] == [True, True, False]
    second.write("b/three", [ledger.Result({}, {"seconds": float("nan")})])
    third = ledger.Ledger(path, COMMON, retry=True)
    assert [third.done(f"b/{name}") for name in ("one", "two", "three")] == [True, False, True]
    assert [line["numbers"]["seconds"] for line in third.find("b/one") + third.find("b/three")] == [1.235, None]
    assert not ledger.Ledger(path, COMMON | {"device": "other"}).lines


def test_parts_share_the_time(module):
    ledger = module("accelerator_parts.ledger")
    clock = ledger.Clock(1000, ["a", "b", "e"])
    assert clock.left("a") < clock.left("b") < clock.left("e") == pytest.approx(clock.left(), abs=0.1)
    piece = ledger.Piece("a/one", 10, list)
    clock.learn(piece, 20)
    assert clock.expected(piece) == 20


def test_the_table_begins_with_what_matters(module):
    table = module("accelerator_parts.table")
    planned = table.plan()
    assert [[run.name for run in group] for group in planned[:2]] == [
        ["e/arfl shuffling 50 % seed 0"],
        ["e/fedavg shuffling 50 % seed 0"],
    ]
    assert len({run for group in planned for run in group}) == 175
    assert table.published(planned[0][0]) == 0.6966
    assert all(table.published(run) for group in planned for run in group)


@pytest.mark.slow
def test_runs_of_the_table_are_fedsims(digits, module, tmp_path):
    """A group of runs, stopped and continued, has the rows of `fedsim run`."""
    runs, work = module("accelerator_parts.table_runs"), module("accelerator_parts.work")
    chosen = [runs.Run("arfl", kind, 0.5, 3) for kind in ("shuffling", "noisy")]
    first = runs.Group(work.quickstart([digits], tiny=True), chosen, every=2)
    first.start()
    first.advance(2)
    rows = {2: first.report()}
    first.advance(1)
    first.save(tmp_path / "states")
    (path, saved, num_rounds), *_ = runs.saved(tmp_path / "states")
    assert (saved, num_rounds) == (chosen, 3)
    second = runs.Group(first.work, saved, every=2)
    second.restore(path)
    second.advance(1)
    rows[4] = second.report()
    grid = {"corruption__kind": ["shuffling", "noisy"], "corruption__fraction": 0.5, "seed": 3, "arfl__lam": 1.0}
    few = {"server__aggregator": "arfl", "server__num_rounds": 4, "client__epochs": 1}
    result = fedsim.run(fedsim.load(QUICKSTART, **few, **grid), out=tmp_path / "run", progress=False)
    wanted = [row for row in result.rounds.to_pylist() if row["round"]]
    assert len(wanted) == 4
    for row in wanted:
        found = rows[row["round"]][[run.kind for run in chosen].index(row["corruption"])]
        assert found == pytest.approx({name: row[name] for name in found}, rel=1e-4)
