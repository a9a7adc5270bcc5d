"""Experiments end to end: rows, determinism, interruption, report, and the command line."""

import json
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest

from fedsim import report
from fedsim.cli.main import main
from fedsim.cli.overrides import split_overrides
from fedsim.config.toml import parse
from fedsim.engine import build
from fedsim.engine.experiment import Progress, run
from fedsim.engine.layout import Layout
from fedsim.engine.plan import make_plan
from fedsim.engine.programs import Programs, group_runs, map_runs, prepare
from fedsim.errors import ConfigError, RunFolderError
from fedsim.report import cells
from fedsim.runs.folder import CLIENTS, ROUNDS

SMALL = """
[data]
num_clients = 6
partition = "dirichlet"
[model]
hidden_sizes = [8]
[client]
epochs = 1
batch_size = 16
[server]
cohort_size = 4
num_rounds = 5
eval_every = 2
[[sweep]]
server.aggregator = ["fedavg", "arfl"]
corruption.kind = "none"
arfl.lam = 1e4
seed = [0, 1]
[[sweep]]
server.aggregator = ["fedavg", "arfl"]
corruption.kind = "shuffling"
corruption.fraction = 0.5
seed = [0, 1]
"""


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse(SMALL, name="small"))


@pytest.fixture(scope="module")
def folder(plan, tmp_path_factory):
    folder = run(plan, tmp_path_factory.mktemp("runs") / "small", Progress())
    report.make(folder)
    return folder


@pytest.fixture(scope="module")
def config_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "small.toml"
    path.write_text(SMALL)
    return path


def test_one_program_a_rule(plan):
    assert [len(group.runs) for group in plan.groups] == [4, 4]


def test_what_is_data_shares_a_program():
    text = """[[sweep]]
    corruption.kind = ["shuffling", "flipping", "collusion", "exclude"]
    corruption.fraction = [0.0, 0.3]
    arfl.lam = [0.1, 1.0]
    client.learning_rate = [0.1, 0.2]
    seed = [0, 1]"""
    runs = parse(text).runs()
    assert len(runs) == 5 * 8  # clean once
    assert len(group_runs(runs)) == 1
    runs = parse("[[sweep]]\ncorruption.fraction = 0.3\ncorruption.kind = ['noisy', 'flipping']").runs()
    assert len(group_runs(runs)) == 2  # images are shared by all runs but those that change them
    assert len(group_runs(parse("[[sweep]]\nclient.epochs = [1, 2]").runs())) == 2


def test_tables_have_the_documented_schema(folder):
    rounds, clients = folder.read("rounds"), folder.read("clients")
    assert rounds.schema.equals(ROUNDS)
    assert clients.schema.equals(CLIENTS)
    assert rounds.num_rows == 8 * 4  # rounds 0, 2, 4 and 5
    assert rounds["round"].to_pylist()[:4] == [0, 2, 4, 5]
    by_run = rounds.to_pylist()
    assert all((row["lam"] is None) == (row["aggregator"] == "fedavg") for row in by_run)
    assert all((row["corrupted_weight"] is None) == (row["round"] == 0) for row in by_run)
    assert all(row["corrupted_weight"] == 0 for row in by_run if row["corruption"] == "none" and row["round"])
    assert all(0 <= row["test_accuracy"] <= 1 for row in by_run)


def test_client_rows_are_the_cohort_of_every_round_and_all_where_alpha_is_kept(folder, plan):
    table = folder.read("clients").to_pylist()
    arfl = {i for i, config in enumerate(plan.runs) if config.server.aggregator == "arfl"}
    for i in range(len(plan.runs)):
        for t in range(1, 6):
            rows = [r for r in table if r["run"] == i and r["round"] == t]
            cohort = [r for r in rows if r["weight"] is not None]
            evaluated = t in (2, 4, 5)
            assert len(cohort) == 4
            assert sum(r["weight"] for r in cohort) == pytest.approx(1, abs=1e-5)
            assert len(rows) == (6 if i in arfl and evaluated else 4)
            assert all((r["alpha"] is not None) == (i in arfl and evaluated) for r in rows)
            if i in arfl and evaluated:
                assert sum(r["alpha"] for r in rows) == pytest.approx(1, abs=1e-5)
    corrupted = {r["client_id"] for r in table if r["run"] == len(plan.runs) - 1 and r["corrupted"]}
    assert len(corrupted) == 3


def test_a_run_of_the_sweep_is_the_library_call(folder, plan):
    """The last run again, alone, from Python objects."""
    position = len(plan.runs) - 1
    config = plan.runs[position]
    dataset = plan.datasets[config.data]
    data = jax.tree.map(jnp.asarray, dataset.train)
    inputs = jax.tree.map(lambda a: a[0], prepare([config], data))
    clients = data._replace(y=inputs.changes.y, corrupted=inputs.changes.corrupted)
    simulation = build.simulation(config, dataset)
    state = simulation.init(inputs.key, clients, inputs.hparams)
    _, records = simulation.run(state, clients, inputs.hparams, 5)
    table = folder.read("clients").to_pylist()
    for t in range(5):
        rows = {r["client_id"]: r for r in table if r["run"] == position and r["round"] == t + 1}
        for slot, client in enumerate(records.client_ids[t].tolist()):
            assert rows[client]["weight"] == pytest.approx(float(records.weights[t, slot]), abs=1e-4)
            assert rows[client]["loss"] == pytest.approx(float(records.losses[t, slot]), rel=1e-3)


def test_same_results_again_bit_for_bit(folder, plan, tmp_path):
    again = run(plan, tmp_path / "again", Progress())
    for kind in ("rounds", "clients"):
        assert again.read(kind).equals(folder.read(kind))


def test_resolved_config_gives_the_same_results(folder, plan):
    again = make_plan(parse((folder.path / "config.toml").read_text()))
    assert again.runs == plan.runs
    assert again.groups == plan.groups


def test_no_rounds_at_all(tmp_path):
    plan = make_plan(parse("[server]\nnum_rounds = 0\n[model]\nhidden_sizes = [4]"))
    assert run(plan, tmp_path / "zero", Progress()).read("rounds")["round"].to_pylist() == [0]


def test_a_group_compiles_once(plan):
    """Whatever the round, the grid value or the length of the chunk: one trace of the chunk, of init and of measure."""
    group = plan.groups[1]
    configs = [plan.runs[i] for i in group.runs]
    dataset = plan.datasets[configs[0].data]
    shared = jax.tree.map(jnp.asarray, dataset.train)
    inputs = prepare(configs, shared)
    programs = Programs(build.simulation(configs[0], dataset, Layout(client_width=4)), 2, 2)
    chex.clear_trace_counter()
    chunk = jax.jit(chex.assert_max_traces(programs.chunk, n=1))
    state = programs.init(shared, inputs)
    for num_rounds in (2, 2, 1):
        state, _ = chunk(state, shared, inputs, jnp.int32(num_rounds))
    other = inputs._replace(hparams=jax.tree.map(lambda a: 2 * a, inputs.hparams))
    chunk(state, shared, other, jnp.int32(2))
    assert chunk._cache_size() == 1
    assert state.round.tolist() == [5] * 4


def test_more_rounds_and_other_values_compile_nothing_more(tmp_path):
    """Programs that XLA compiles for an experiment, counted by jax: as many for 2 rounds as for 5 in chunks of 2."""
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
    )
    counts = []
    for trial, overrides in enumerate([{}, {}, {"server.num_rounds": "2"}, {"sweep.seed": ["5", "6"]}]):
        plan = make_plan(parse(SMALL, overrides))
        compiled.clear()
        run(plan, tmp_path / str(trial), Progress())
        counts.append(len(compiled))
    assert counts[1] >= 3 * len(plan.groups)
    assert counts[1] == counts[2] == counts[3]  # the first trial may compile shared helpers too


@pytest.mark.parametrize("width", [1, 2, 3, 5, 9])
def test_map_runs_is_a_loop(width):
    runs = (jnp.arange(5.0), jnp.ones((5, 2)))
    got = map_runs(lambda args: args[0] * args[1], runs, width)
    np.testing.assert_allclose(got, np.arange(5.0)[:, None] * np.ones((5, 2)))


def test_summary_by_hand(folder):
    """Mean and deviation of the final accuracy, recomputed from the rows."""
    rows = [r for r in folder.read("rounds").to_pylist() if r["aggregator"] == "arfl" and r["fraction"] == 0.5]
    final = [100 * r["test_accuracy"] for r in rows if r["round"] == 5]
    line = next(r for r in report.summary(cells.read(folder)) if r["aggregator"] == "arfl" and r["fraction"] == 0.5)
    assert 100 * line["final_accuracy_mean"] == pytest.approx(np.mean(final))
    assert 100 * line["final_accuracy_std"] == pytest.approx(np.std(final, ddof=1))
    assert line["num_runs"] == 2
    header = (folder.path / "summary.csv").read_text().splitlines()[0]
    assert header.split(",") == list(line)


def test_auc_of_weights_that_ignore_corruption_is_a_half(folder):
    lines = report.summary(cells.read(folder))
    fedavg = next(r for r in lines if r["aggregator"] == "fedavg" and r["fraction"] == 0.5)
    assert fedavg["weight_auc_mean"] == pytest.approx(0.5)
    assert all(r["weight_auc_mean"] is None for r in lines if r["corruption"] == "none")


def test_figures_are_drawn(folder):
    figures = {p.stem: p.stat().st_size for p in (folder.path / "figures").glob("*.png")}
    assert set(figures) == {"accuracy", "loss", "corrupted_weight", "client_weights"}
    assert min(figures.values()) > 10_000


def test_rows_of_evaluated_rounds_only_or_none(tmp_path):
    counts = {}
    for choice in ("evaluated", "none"):
        text = f"[record]\nclients = '{choice}'\n[server]\nnum_rounds = 4\neval_every = 2\n[model]\nhidden_sizes = [4]"
        plan = make_plan(parse(text, {"server.aggregator": "fedavg", "server.cohort_size": "3"}))
        counts[choice] = run(plan, tmp_path / choice, Progress()).read("clients").num_rows
    assert counts == {"evaluated": 2 * 3, "none": 0}


DIVERGING = """
[data]
num_clients = 4
[model]
hidden_sizes = [4]
[server]
cohort_size = 4
num_rounds = 4
eval_every = 2
[record]
models = true
[[sweep]]
client.learning_rate = [0.1, 1e25]
"""


def test_a_run_that_diverges_is_recorded_and_stops_nobody_else(tmp_path):
    plan = make_plan(parse(DIVERGING))
    assert len(plan.groups) == 1
    folder = run(plan, tmp_path / "both", Progress())
    rows = folder.read("rounds").to_pylist()
    assert [row["diverged"] for row in rows] == [False, False, False, False, True, True]
    alone = run(make_plan(parse(DIVERGING, {"client.learning_rate": "0.1"})), tmp_path / "alone", Progress())
    for mixed, single in zip(rows, alone.read("rounds").to_pylist(), strict=False):
        assert mixed["test_loss"] == pytest.approx(single["test_loss"], rel=1e-5)


def test_models_are_kept(tmp_path):
    """The model that is kept has the accuracy of the last row."""
    plan = make_plan(parse(DIVERGING, {"client.learning_rate": "0.1"}))
    folder = run(plan, tmp_path / "run", Progress())
    model = folder.read_model(0)
    assert set(model) == {f"Dense_{i}/{name}" for i in (0, 1) for name in ("kernel", "bias")}
    dataset = plan.datasets[plan.runs[0].data]
    hidden = dataset.x_test.reshape(len(dataset.y_test), -1) / 255 @ model["Dense_0/kernel"]
    hidden = np.maximum(hidden + model["Dense_0/bias"], 0)
    logits = hidden @ model["Dense_1/kernel"] + model["Dense_1/bias"]
    accuracy = np.mean(np.argmax(logits, axis=1) == dataset.y_test)
    assert folder.read("rounds")["test_accuracy"][-1].as_py() == pytest.approx(accuracy, abs=1e-6)
    with pytest.raises(RunFolderError, match="record"):
        folder.read_model(1)


def test_command_line_run_and_report(config_file, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(config_file), "--dry-run"]) == 0
    assert "8 runs in 2 groups" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert main(["run", "--seed", "3", str(config_file), "--corruption.fraction", "0.34"]) == 0
    printed = capsys.readouterr()
    assert "Shuffling 34 %" in printed.out
    assert "one seed" in printed.out
    (path,) = Path("runs").iterdir()
    assert path.name.startswith("small-")
    table = pq.read_table(path / "rounds.parquet")
    assert set(table["seed"].to_pylist()) == {3}
    (path / "summary.csv").unlink()
    assert main(["report", str(path)]) == 0
    assert (path / "summary.csv").exists()
    assert capsys.readouterr().out == printed.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--client.learnig-rate", "0.1"], "unknown key client.learnig_rate; did you mean --client.learning-rate?"),
        (["--sweep.sede", "0", "1"], "unknown key sede; did you mean --sweep.seed?"),
        (["--seed", "1", "--sweep.seed", "1", "2"], "--sweep.seed: given twice"),
        (["--sweep.seed", "1979-05-27"], "dates and times are no value of any key"),
        (["--out", "x" * 300], "File name too long"),
        (["--corruption.fraction", "0.05"], "corruption.fraction: 0.05 of 6 clients is nobody"),
        (["--client.epochs", "0"], "client.epochs: expected `int` >= 1"),
        (["--client.epochs", "few"], "client.epochs: expected `int`, got `str`"),
        (["--client.epochs"], "--client.epochs: needs a value"),
        (["--server.num-rounds", "-5"], "server.num_rounds: expected `int` >= 0"),
        (["--arfl.lam=-1e3"], "arfl.lam: expected `float` >= 1e-30"),
        (["--server.aggregator", "fedavgg"], 'server.aggregator: no "fedavgg"; did you mean fedavg?'),
        (["--server.cohort-size", "7"], "server.cohort_size: 7 clients a round, but there are only 6"),
        (["--data.partition", "natural"], "digits has no natural clients"),
        (["--data.min-examples", "400"], "too few for 400 or more at each of 6 clients"),
        (["--out", "/proc/nowhere"], "/proc/nowhere: cannot be made"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line_and_exit_2(arguments, message, config_file, capsys):
    assert main(["run", str(config_file), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert error.startswith("fedsim: error: ")


@pytest.mark.parametrize(
    "arguments", [["run"], ["rnu"], ["run", "x.toml", "--dryrun"], ["report"], ["report", "x", "--format", "html"]]
)
def test_wrong_usage_exits_2(arguments, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("fedsim: error: ")
    assert error.count("\n") == 1


def test_missing_and_broken_run_folders(folder, tmp_path, capsys):
    assert main(["report", str(tmp_path / "none")]) == 2
    assert "not a run folder" in capsys.readouterr().err
    assert main(["report", str(folder.path / "config.toml")]) == 2
    assert "not a run folder" in capsys.readouterr().err
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_text("{")
    assert main(["report", str(broken)]) == 2
    assert "broken" in capsys.readouterr().err
    (broken / "manifest.json").write_text(json.dumps(folder.read_manifest()))
    pq.write_table(folder.read("rounds").slice(0, 20), broken / "rounds.parquet")
    assert main(["report", str(broken)]) == 2
    assert "no rows of run 5" in capsys.readouterr().err
    (broken / "rounds.parquet").write_bytes(b"not parquet")
    assert main(["report", str(broken)]) == 2
    assert "rounds.parquet: broken" in capsys.readouterr().err


def test_a_misspelled_command_is_named(capsys):
    assert main(["rnu", "x.toml"]) == 2
    assert "no command rnu; did you mean run?" in capsys.readouterr().err
    assert main(["zzz"]) == 2
    assert "the commands are run, config, report" in capsys.readouterr().err


def test_welcome_config_and_version(capsys):
    assert main([]) == 0
    assert "fedsim run configs/quickstart.toml" in capsys.readouterr().out
    assert main(["config"]) == 0
    assert "[server]" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0


def test_overrides_are_split_from_options():
    rest, overrides = split_overrides(
        ["run", "--sweep.seed", "0", "1", "c.toml", "--client.learning-rate=0.5", "--out", "d", "--arfl.lam", "4"]
    )
    assert rest == ["run", "c.toml", "--out", "d"]
    assert overrides == {"sweep.seed": ["0", "1"], "client.learning_rate": "0.5", "arfl.lam": "4"}
    with pytest.raises(ConfigError):
        split_overrides(["--sweep.seed"])
