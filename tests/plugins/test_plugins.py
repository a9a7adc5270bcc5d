"""Plug-ins from one file outside of the package, named by path: run, swept, interrupted and resumed."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import fedsim
from fedsim import testing
from fedsim.engine import compiling, make_plan, run_plan
from fedsim.engine.compiling import clear_programs
from fedsim.engine.slurm import submit
from fedsim.errors import RunFolderError
from tests.conftest import check_equal, finish_jobs
from tests.engine.test_store import compute
from tests.plugins import plugins

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with the plug-ins and their configuration."""
    folder = tmp_path_factory.mktemp("plugins")
    for name in ("plugins.py", "plugins.toml"):
        shutil.copy(HERE / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def experiment(folder):
    return fedsim.load(folder / "plugins.toml")


@pytest.fixture(scope="module")
def compiled():
    """The groups that are compiled."""
    with pytest.MonkeyPatch.context() as patch:
        clear_programs()
        calls = []
        trace = compiling._trace
        patch.setattr(compiling, "_trace", lambda inputs: calls.append(inputs) or trace(inputs))
        yield calls


@pytest.fixture(scope="module")
def undisturbed(experiment, folder, compiled):
    return run_plan(make_plan(experiment), folder / "undisturbed")


def test_a_sweep_over_traced_settings_compiles_once(undisturbed, experiment, compiled):
    assert len(experiment.runs()) == 7
    assert len(compiled) == 2  # five values of trust.decay, two of searching.max_strength
    rounds = undisturbed.read("rounds").to_pandas()
    last = rounds[rounds["round"] == 6]
    assert last["test_loss"].nunique() == 7
    assert not rounds["diverged"].any()


def test_a_swept_value_gives_the_same_results_alone(undisturbed, folder):
    alone = fedsim.load(folder / "plugins.toml", trust__decay=0.7, data__name=str(folder / "plugins.py:blobs"))
    run_folder = run_plan(make_plan(alone), folder / "alone")
    swept = undisturbed.read("rounds").to_pandas()
    swept = swept[swept["run"] == 3]
    np.testing.assert_allclose(run_folder.read("rounds").to_pandas()["test_loss"][:4], swept["test_loss"], rtol=2e-3)


def test_classifications_have_an_accuracy_and_regressions_do_not(undisturbed):
    rounds = undisturbed.read("rounds").to_pandas()
    classes, numbers = rounds[rounds["run"] < 5], rounds[rounds["run"] >= 5]
    assert classes["test_accuracy"].notna().all()
    assert numbers["test_accuracy"].isna().all()
    assert numbers["test_loss"].notna().all()


def test_info_of_the_rule_is_recorded(undisturbed):
    info = undisturbed.read("info").to_pandas()
    counted = info[(info["run"] == 0) & (info["name"] == "rounds")]
    assert counted["value"].tolist() == [1, 2, 3, 4, 5, 6]


def test_weights_are_recorded_for_each_client_though_rows_are_averaged(undisturbed):
    clients = undisturbed.read("clients").to_pandas()
    weights = clients[clients["run"] == 0].groupby("round")["weight"]
    assert (weights.count() == 5).all()
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-5)


def test_an_interrupted_run_resumes_bit_for_bit(undisturbed, experiment, folder):
    path = folder / "killed"
    for calls in (2, 3):
        compute(make_plan(experiment), path, calls)
    check_equal(run_plan(make_plan(experiment), path, checkpoint_seconds=0), undisturbed)


def test_cluster_jobs_give_the_same_results(undisturbed, experiment, folder):
    pytest.importorskip("submitit")
    path = folder / "jobs"
    jobs = submit(experiment, path, {"cluster": "local", "jobs": "2"})
    assert len(jobs) == 2
    finish_jobs(jobs, path)  # else this process would do the work before they have started
    check_equal(run_plan(make_plan(experiment), path), undisturbed)


def test_a_changed_file_is_refused_when_resuming(experiment, folder):
    path = folder / "changed"
    compute(make_plan(experiment), path, calls=2)
    source = folder / "plugins.py"
    before = source.read_text()
    source.write_text(before + "\n# another character\n")
    try:
        with pytest.raises(RunFolderError, match=r".*plugins\.py:.* has changed"):
            run_plan(make_plan(experiment), path)
    finally:
        source.write_text(before)


def test_each_plugin_passes_its_check():
    testing.check_aggregator(plugins.trust(decay=0.3))
    testing.check_pre_aggregator(plugins.pairs())
    testing.check_attack(plugins.searching())
    testing.check_algorithm(plugins.my_scaffold())
    testing.check_corruption(plugins.blank(value=0.5))
    for raw, model in ((plugins.blobs(0), plugins.normed), (plugins.slopes(0), plugins.features)):
        owner = plugins.halves(raw, 6, np.random.default_rng(0))
        data = fedsim.from_arrays(raw.x, raw.y, owner, raw.x_test, raw.y_test)
        testing.check_dataset(data)
        built = model(data.spec)
        task = built if isinstance(built, fedsim.Task) else fedsim.classification(built, data.train.x[0])
        testing.check_task(task, data)


def test_frozen_arrays_are_arguments_not_constants():
    spec = fedsim.DataSpec("vector", "numbers", 0, (2,), "float32")
    task = plugins.features(spec, width=500)
    assert jax.tree.leaves(task.frozen)[0].shape == (2, 500)
    text = jax.jit(lambda f, v, x: task.bind(f).metrics(v, x, x[:, 0], x[:, 0] > 0)).lower(
        task.frozen, task.init(jax.random.key(0)), np.zeros((3, 2), np.float32)
    )
    assert len(text.as_text()) < 10_000
