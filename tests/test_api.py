"""`fedsim.load` and `fedsim.run`: accepted values, and the same results as the command line."""

import base64
import io
import tomllib

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars
import pytest
from rich.console import Console

import fedsim
from fedsim import report, terminal
from fedsim.cli.main import main
from fedsim.errors import ConfigError, RunFolderError, python_options
from fedsim.runs.folder import RunFolder
from tests.conftest import Seen, Stop, check_equal
from tests.report import synthetic

TEXT = """
data = {num_clients = 6, num_train = 240}
mlp.hidden_sizes = [8]
server = {cohort_size = 4, num_rounds = 4, eval_every = 2}
corruption = {kind = "shuffling", fraction = 0.5}
record = {models = true, data = true}
preset.small = {server.num_rounds = 1}
sweep = [{seed = [0, 1]}]
"""
TABLES = tomllib.loads(TEXT)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return fedsim.run(TABLES, out=tmp_path_factory.mktemp("runs") / "two", progress=False)


def test_public_names_are_there_when_they_are_used():
    assert {"load", "Simulation", "aggregators", "__version__"} <= set(dir(fedsim))
    assert fedsim.report.summary  # a subpackage that nothing else has imported
    names = {}
    exec("from fedsim import *", names)
    assert {"load", "Simulation", "aggregators"} <= set(names)
    assert not hasattr(fedsim, "aggregators.arfl")
    with pytest.raises(AttributeError, match=r"^module 'fedsim' has no attribute 'laod'$"):
        fedsim.laod  # noqa: B018


def test_files_paths_and_tables_are_equivalent(config):
    loaded = [fedsim.load(source, name="trial") for source in (config, str(config), TABLES)]
    assert len({experiment.dump() for experiment in loaded}) == 1
    assert loaded[0].name == "trial"
    assert fedsim.load(config).name == "two"
    assert TABLES["preset"] == {"small": {"server": {"num_rounds": 1}}}  # the argument is not changed


def test_numpy_values_and_paths_are_accepted(tmp_path):
    runs = fedsim.load(
        {},
        seed=fedsim.sweep(np.arange(3)),
        corruption__fraction=fedsim.sweep([np.float32(0.5), np.float64(0.25)]),
        mlp__hidden_sizes=np.array([8, 4]),
        server__num_rounds=np.int64(7),
        data__name="arrays",
        arrays__path=tmp_path / "a.npz",
        corruption__kind="shuffling",
    ).runs()
    assert {run.seed for run in runs} == {0, 1, 2}
    assert {run.corruption.fraction for run in runs} == {0.5, 0.25}
    assert {run.server.num_rounds for run in runs} == {7}
    assert {run.section("mlp")["hidden_sizes"] for run in runs} == {(8, 4)}
    assert {run.section("arrays")["path"] for run in runs} == {str(tmp_path / "a.npz")}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"server__aggregator": ["fedavg", "arfl"]}, r"server\.aggregator: .*; .*fedsim\.sweep"),
        ({"preset": "smal"}, "did you mean small?"),
        ({"data__num_clients": 3}, r"with data__num_clients: server\.cohort_size: must be at most .* got 4"),
    ],
)
def test_wrong_values_are_config_errors(overrides, message, config):
    with pytest.raises(ConfigError, match=message):
        fedsim.load(config, **overrides)
    with pytest.raises(ConfigError, match=message):
        fedsim.load(TABLES, **overrides)


def test_keys_with_dots_keep_their_underscores(tmp_path):
    rule = "from fedsim import Scalar, Traced\nfrom fedsim.aggregators import median\nfrom typing import Annotated\n"
    rule += "def my__rule(*, tau: Annotated[Scalar, Traced(), 'unused'] = 1.0):\n    return median()\n"
    (tmp_path / "rule.py").write_text(rule)
    overrides = {"server__aggregator": f"{tmp_path}/rule.py:my__rule", "my__rule.tau": 2}
    (run,) = fedsim.load({}, **overrides).runs()
    assert dict(run.settings)["my__rule.tau"] == 2


@pytest.mark.parametrize("values", [3, "ab"])
def test_a_sweep_has_several_values(values):
    with pytest.raises(ConfigError, match="sweep: must get several values, such as"):
        fedsim.sweep(values)


def test_messages_about_folders_name_the_arguments_of_python(config, tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(RunFolderError, match=r"has runs of fedsim 0\.3, which cannot be resumed; choose another out$"):
        fedsim.run(config, out=tmp_path, progress=False)
    with (
        pytest.raises(RunFolderError, match=r"^allow_mismatch=True; run `fedsim data prepare x --force`$"),
        python_options(),
    ):
        raise RunFolderError("--allow-mismatch; run `fedsim data prepare x --force`")  # a command stays one


def test_results_are_those_of_the_command_line(config, result, tmp_path, capsys):
    assert main(["run", str(config), "--name", "fedsim", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    check_equal(RunFolder(tmp_path / "out"), result.folder)
    read_configs = lambda path: {file.name: file.read_text() for file in (path / "configs").iterdir()}
    assert read_configs(result.path) == read_configs(tmp_path / "out")
    summary = pd.read_csv(tmp_path / "out" / "summary.csv")
    mean = result.summary.to_pandas()["final_accuracy_mean"]
    assert mean.tolist() == pytest.approx(summary["final_accuracy_mean"].tolist(), abs=1e-4)
    written = [path for path in (tmp_path / "out").iterdir() if path.suffix in (".csv", ".md", ".tex")]
    tables = {path.name: path.read_text() for path in written}
    assert {"summary.csv", "table.md", "table.tex"} <= set(tables)
    assert {name: (result.path / name).read_text() for name in tables} == tables
    plotted = {path.stem for path in (tmp_path / "out" / "figures").glob("*.png")}
    assert set(result.figures()) == plotted
    assert "Shuffling 50 %" in printed
    assert "Shuffling 50 %" in repr(result)
    assert report.load(result).table.equals(result.table)  # which stands for its path


def test_notebooks_show_the_plan_table_and_curves(config, result):
    swept = fedsim.load(config, arfl__lam=fedsim.sweep([1, 3]))
    assert "| `arfl.lam` | 1, 3 |" in swept._repr_markdown_()
    assert "4 runs" in swept._repr_markdown_()
    shown = result._repr_markdown_()
    assert shown.startswith(repr(result))
    png = base64.b64decode(shown.partition("![accuracy](data:image/png;base64,")[2].rpartition(")")[0])
    height, width, channels = plt.imread(io.BytesIO(png)).shape
    assert min(height, width) > 100
    assert channels >= 3


def test_a_notebook_has_a_progress_bar(monkeypatch, tmp_path):
    monkeypatch.setattr(terminal, "make_console", lambda stderr: Console(force_jupyter=True))
    monkeypatch.setattr(terminal, "find_spec", lambda name: None)
    assert isinstance(terminal.show_progress(tmp_path, []), terminal.ProgressLines)  # without ipywidgets
    monkeypatch.setattr(terminal, "find_spec", lambda name: "a module")
    assert isinstance(terminal.show_progress(tmp_path, []), terminal.ProgressBar)


def test_models_and_data_are_those_of_the_run(result):
    models = [result.model(run) for run in (0, 1)]
    assert len(repr(models)) < 9000  # without arrays
    for read in (result.model, result.data):
        with pytest.raises(ConfigError, match="run: must be a position in `runs`, which has 2, got 2"):
            read(2)
    kernels = [model.arrays["Dense_0/kernel"] for model in models]
    assert [kernel.shape for kernel in kernels] == [(64, 8), (64, 8)]
    assert not np.array_equal(*kernels)
    last = result.rounds.filter(polars.col("round") == 4).sort("run")["test_accuracy"]
    accuracies = [np.mean(np.argmax(model(model.dataset.x_test), axis=1) == model.dataset.y_test) for model in models]
    np.testing.assert_allclose(accuracies, last, rtol=1e-6)
    with pytest.raises(ValueError, match=r"x: must have the shape \[M, 8, 8, 1\], got \[3, 64\]"):
        models[0](np.zeros((3, 64)))
    pixels = models[0].dataset.x_test.astype(int)
    for wrong, got in ((pixels / 255, "float64"), (pixels + 256, r"256 to \d+")):
        with pytest.raises(ValueError, match=f"x: must be whole numbers from 0 to 255, .* got {got}"):
            models[0](wrong)
    assert result.data(1)["x"].shape == (240, 8, 8, 1)
    assert [run["seed"] for run in result.runs] == [0, 1]


def test_another_plug_in_of_the_model_is_noticed(tmp_path):
    path = tmp_path / "net.py"
    path.write_text("import flax.linen as nn\n\n\ndef net(spec):\n    return nn.Sequential([nn.Dense(3), nn.relu])\n")
    data = fedsim.from_arrays(
        np.eye(6, dtype=np.float32), np.arange(6) % 3, np.arange(6) % 2, np.eye(6), np.arange(6) % 3
    )
    keys = {"server__num_rounds": 1, "server__cohort_size": 2, "record__models": True}
    experiment = fedsim.load({"model": {"name": f"{path}:net"}}, data=data, **keys)
    result = fedsim.run(experiment, out=tmp_path / "a", progress=False)
    assert result.model(0, data)(data.x_test).shape == (6, 3)
    path.write_text(path.read_text().replace("relu", "tanh"))
    with pytest.raises(ConfigError, match=r"^model\.name: .*net has changed since the run; restore it$"):
        result.model(0, data)


def test_a_model_of_data_in_memory_needs_them_again(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)).astype(np.float32), rng.integers(0, 2, 60)
    data, other = (fedsim.from_arrays(x + i, y, np.arange(60) % 4, x[:9], y[:9]) for i in (0, 1))
    tables = {"model": {"name": "logistic"}, "server": {"num_rounds": 1, "cohort_size": 4}, "record": {"models": True}}
    result = fedsim.run(fedsim.load(tables, data=data), out=tmp_path, progress=False)
    model = result.model(0, data)
    expected = x @ model.arrays["Dense_0/kernel"] + model.arrays["Dense_0/bias"]
    np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match=r"^data: must be the data set of the run, but other examples were loaded$"):
        result.model(0, other)
    with pytest.raises(ConfigError, match=r"^data: .* `fedsim\.load` got"):
        result.model(0)


def test_the_model_of_fewer_rounds_is_not_that_of_a_run_that_got_more(tmp_path):
    tables = {"model": {"name": "logistic"}, "server": {"eval_every": 1}}
    tables["record"] = {"models": True, "final_states": True}
    run = lambda rounds, *callbacks: fedsim.run(
        fedsim.load(tables, server__num_rounds=rounds), out=tmp_path, progress=False, callbacks=callbacks
    )
    run(1)
    with pytest.raises(KeyboardInterrupt):
        run(3, Stop(calls=1))
    interrupted = fedsim.Result(tmp_path)
    assert interrupted.runs[0]["server.num_rounds"] == 3
    with pytest.raises(RunFolderError, match=r"the run is incomplete; run its configuration again to resume$"):
        interrupted.model(0)
    assert run(3).model(0).arrays


def test_rows_have_swept_keys(tmp_path):
    runs = [synthetic.run("arfl", **{"client.learning_rate": rate}) for rate in (0.1, 0.2)]
    result = fedsim.Result(synthetic.make_folder(tmp_path / "run", runs, alphas=lambda run: [1.0]))
    for table in (result.rounds, result.info, result.clients):
        assert table["client.learning_rate"].to_list() == [runs[run]["client.learning_rate"] for run in table["run"]]


def test_complete_runs_are_not_repeated(result, capsys):
    seen = Seen()
    again = fedsim.run(fedsim.load(TABLES), out=str(result.path), progress=False, callbacks=[seen])
    assert again.rounds.equals(result.rounds)
    assert seen.calls == []
    assert fedsim.Result(str(result.path)).rounds.equals(result.rounds)
    assert fedsim.Result(result.folder).path == result.path
    assert capsys.readouterr().err == ""


class Early(Seen):
    def after_evaluation(self, evaluation):
        super().after_evaluation(evaluation)
        evaluation.tables["rounds"]["test_accuracy"] *= 100  # of its own copy
        return evaluation.round == 2


@pytest.mark.parametrize("callbacks", [fedsim.Callback(), [fedsim.Callback], [print]])
def test_other_callbacks_are_refused_before_anything_runs(callbacks, tmp_path):
    with pytest.raises(ConfigError, match=r"^callbacks: must be a list of fedsim\.Callback objects, got"):
        fedsim.run(TABLES, out=tmp_path / "out", callbacks=callbacks)
    assert not (tmp_path / "out").exists()


class Broken(Seen):
    def on_start(self, start):
        raise RuntimeError("mine")


def test_callbacks_that_have_started_end(tmp_path):
    first, broken = Seen(), Broken()
    with pytest.raises(RuntimeError, match="mine"):
        fedsim.run(TABLES, out=tmp_path / "out", progress=False, callbacks=[first, broken])
    assert (first.calls, broken.calls) == (["start", "end"], [])


def test_callbacks_may_stop_the_experiment_which_can_be_resumed(result, tmp_path, capsys):
    stops, seen = Early(), Seen()
    stopped = fedsim.run(TABLES, out=tmp_path / "stopped", progress=False, callbacks=iter([stops]))
    assert stops.calls == ["start", 0, 2, "end"]
    assert stopped.rounds["round"].unique().sort().to_list() == [0, 2]
    resumed = fedsim.run(TABLES, out=tmp_path / "stopped", progress=False, callbacks=[seen])
    assert seen.calls == ["start", 4, "end"]
    assert seen.starts[0].after == 2
    check_equal(resumed.folder, result.folder)
    assert capsys.readouterr().err == ""


def test_default_progress_and_folder(capsys):
    result = fedsim.run({"server": {"num_rounds": 0}, "mlp": {"hidden_sizes": [4]}, "name": "zero"})
    assert result.path.parts[0] == "runs"
    assert result.path.name.startswith("zero-")
    assert "group 1/1 arfl, 1 run: running" in capsys.readouterr().err
    assert report.load(result.folder)
    assert result.rounds["round"].to_list() == [0]
    assert set(result.clients["round"]) == {0}  # the weights alpha of the initial losses
    assert result.clients["alpha"].sum() == pytest.approx(1, abs=1e-6)
    assert result.clients["weight"].null_count() == len(result.clients)
