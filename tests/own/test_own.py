"""A user's own things, all from one file outside the package, named by path: run, swept, killed, gone on with."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import fedsim
from fedsim import testing
from fedsim.engine import make_plan, run_plan
from fedsim.engine.compiling import GroupPrograms
from fedsim.engine.slurm import submit
from fedsim.errors import RunFolderError
from tests.conftest import Stop, check_equal, finish_jobs
from tests.own import things

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with the user's file and configuration."""
    folder = tmp_path_factory.mktemp("own")
    for name in ("things.py", "things.toml"):
        shutil.copy(HERE / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def experiment(place):
    return fedsim.load(place / "things.toml")


@pytest.fixture(scope="module")
def compiled():
    """Counts the groups that are compiled."""
    with pytest.MonkeyPatch.context() as patch:
        calls = []
        lower_group = GroupPrograms.lowered

        def counted(self):
            calls.append(self)
            return lower_group(self)

        patch.setattr(GroupPrograms, "lowered", counted)
        yield calls


@pytest.fixture(scope="module")
def undisturbed(experiment, place, compiled):
    return run_plan(make_plan(experiment), place / "undisturbed")


def test_a_sweep_over_traced_settings_compiles_once(undisturbed, experiment, compiled):
    assert len(experiment.runs()) == 7
    assert len(compiled) == 2  # five values of trust.decay, two of searching.most
    rounds = undisturbed.read("rounds").to_pandas()
    last = rounds[rounds["round"] == 6]
    assert last["test_loss"].nunique() == 7
    assert not rounds["diverged"].any()


def test_a_swept_value_gives_what_it_gives_alone(undisturbed, place):
    alone = fedsim.load(place / "things.toml", trust__decay=0.7, data__name=str(place / "things.py:blobs"))
    folder = run_plan(make_plan(alone), place / "alone")
    swept = undisturbed.read("rounds").to_pandas()
    swept = swept[swept["run"] == 3]
    np.testing.assert_allclose(folder.read("rounds").to_pandas()["test_loss"][:4], swept["test_loss"], rtol=2e-3)


def test_classes_are_learnt_and_numbers_have_no_accuracy(undisturbed):
    rounds = undisturbed.read("rounds").to_pandas()
    classes, numbers = rounds[rounds["run"] < 5], rounds[rounds["run"] >= 5]
    assert classes["test_accuracy"].notna().all()
    assert numbers["test_accuracy"].isna().all()
    assert numbers["test_loss"].notna().all()


def test_what_the_rule_shows_is_recorded(undisturbed):
    info = undisturbed.read("info").to_pandas()
    counted = info[(info["run"] == 0) & (info["name"] == "rounds")]
    assert counted["value"].tolist() == [1, 2, 3, 4, 5, 6]


def test_weights_are_told_client_by_client_though_rows_are_joined(undisturbed):
    clients = undisturbed.read("clients").to_pandas()
    weights = clients[clients["run"] == 0].groupby("round")["weight"]
    assert (weights.count() == 5).all()
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-5)


def test_killed_it_goes_on_bit_for_bit(undisturbed, experiment, place):
    path = place / "killed"
    for calls in (2, 2, 5):
        with pytest.raises(KeyboardInterrupt):
            run_plan(make_plan(experiment), path, [Stop(calls)], checkpoint_seconds=0)
    check_equal(run_plan(make_plan(experiment), path, checkpoint_seconds=0), undisturbed)


def test_as_jobs_of_a_cluster(undisturbed, experiment, place):
    pytest.importorskip("submitit")
    path = place / "jobs"
    jobs = submit(experiment, path, {"cluster": "local", "jobs": "2"})
    assert len(jobs) == 2
    finish_jobs(jobs, path)  # else this process would do the work before they have started
    check_equal(run_plan(make_plan(experiment), path), undisturbed)


def test_a_changed_file_stops_a_run_that_goes_on(experiment, place):
    path = place / "changed"
    with pytest.raises(KeyboardInterrupt):
        run_plan(make_plan(experiment), path, [Stop(2)], checkpoint_seconds=0)
    source = place / "things.py"
    before = source.read_text()
    source.write_text(before + "\n# another character\n")
    try:
        with pytest.raises(RunFolderError, match=r"was begun with another .*things\.py:.*; put that back"):
            run_plan(make_plan(experiment), path)
    finally:
        source.write_text(before)


def test_each_passes_its_public_check():
    testing.check_aggregator(things.trust(decay=0.3))
    testing.check_pre_aggregator(things.pairs())
    testing.check_attack(things.searching())
    testing.check_algorithm(things.my_scaffold())
    testing.check_corruption(things.blank(value=0.5))
    for raw, model in ((things.blobs(0), things.normed), (things.slopes(0), things.features)):
        owner = things.halves(raw, 6, np.random.default_rng(0))
        data = fedsim.from_arrays(raw.x, raw.y, owner, raw.x_test, raw.y_test)
        testing.check_dataset(data)
        made = model(data.spec)
        task = made if isinstance(made, fedsim.Task) else fedsim.classification(made, data.train.x[0])
        testing.check_task(task, data)


def test_frozen_arrays_are_arguments_not_constants(place):
    spec = fedsim.DataSpec("vector", "numbers", 0, (2,), "float32")
    task = things.features(spec, width=500)
    assert jax.tree.leaves(task.frozen)[0].shape == (2, 500)
    text = jax.jit(lambda f, v, x: task.bind(f).metrics(v, x, x[:, 0], x[:, 0] > 0)).lower(
        task.frozen, task.init(jax.random.key(0)), np.zeros((3, 2), np.float32)
    )
    assert len(text.as_text()) < 10_000
