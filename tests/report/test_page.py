"""The contents of the HTML page: the numbers of each setting, and the command that runs it."""

import re
import shlex
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedsim import report
from fedsim.cli.main import main
from fedsim.cli.overrides import split_overrides
from fedsim.config.components import flatten
from fedsim.config.toml import parse, read
from fedsim.report.html import clients, commands, contents
from fedsim.report.html.page import MODULES, program
from fedsim.report.html.page import page as make_page
from fedsim.runs.schemas import CLIENTS
from tests.report.pages import make_sweep, read_packed, unpack
from tests.report.synthetic import make_folder, run

pytest.importorskip("plotly")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return report.load(make_sweep(tmp_path_factory.mktemp("page") / "a"))


@pytest.fixture(scope="module")
def page(results):
    return make_page(results)


@pytest.fixture(scope="module")
def document(page):
    return unpack(read_packed(page, "data"))


def test_every_number_of_every_run_is_in_the_page(results, document):
    fields = dict.fromkeys(("accuracy", "loss", "validation_accuracy", "validation_loss"), 1e-7)
    fields |= {"corrupted_weight": 0.51 / 65534}
    assert {metric["key"] for metric in document["metrics"]} == set(fields)
    for metric in document["metrics"]:
        at = 0
        numbers = metric["numbers"].astype(float)
        if metric["is_share"]:
            numbers = np.where(numbers == 65535, np.nan, numbers / 65534)
        for setting, packed_setting in zip(results.settings, document["settings"], strict=True):
            expected = getattr(setting, metric["key"])
            actual = numbers[at : at + expected.size].reshape(expected.shape)
            np.testing.assert_allclose(actual, expected, rtol=0, atol=fields[metric["key"]])
            assert document["rounds"][packed_setting["rounds"]] == setting.rounds.tolist()
            at += expected.size
        assert at == len(numbers)


def test_axes_are_the_keys_that_settings_differ_in(results, document):
    axes = {axis["key"]: axis for axis in document["axes"]}
    assert set(axes) == {"row", "threat", "aggregator", "corruption", "attack", "fraction", "lam"}
    value = lambda key, setting: axes[key]["values"][code] if (code := axes[key]["codes"][setting]) >= 0 else None
    for number, setting in enumerate(results.settings):
        assert value("fraction", number) == f"{100 * setting.fraction:g} %"
        assert value("lam", number) == (None if setting.lam is None else f"{setting.lam:g}")
        assert value("attack", number).lower().replace(" ", "_") == setting.attack
        assert (value("threat", number) == "Clean") == (setting.fraction == 0)
    assert axes["fraction"]["values"] == ["0 %", "20 %", "40 %"]
    assert set(axes["row"]["determines"]) == {"aggregator", "lam"}


def test_an_axis_determined_by_another_axis_is_omitted(tmp_path):
    runs = [
        run(rule, 0.3, seed, **{"client.epochs": e}) for rule in ("rfa", "cfl") for e in (1, 10, 2) for seed in (0, 1)
    ]
    axes = unpack(read_packed(make_page(report.load(make_folder(tmp_path / "a", runs))), "data"))["axes"]
    values = {axis["key"]: axis["values"] for axis in axes if axis["key"] != "row"}
    assert values == {"aggregator": ["RFA", "CFL"], "client.epochs": ["1", "2", "10"]}
    runs = [run("rfa", 0.3, 0, **{"client.clip": clip}) for clip in (None, 1.0)]  # None is a value, too
    axes = unpack(read_packed(make_page(report.load(make_folder(tmp_path / "c", runs))), "data"))["axes"]
    assert [(axis["values"], axis["codes"].tolist()) for axis in axes] == [(["None", "1.0"], [0, 1])]
    runs = [run(rule, fraction, 0) for rule in ("rfa", "cfl") for fraction in (0.1, 0.3)]
    axes = unpack(read_packed(make_page(report.load(make_folder(tmp_path / "b", runs))), "data"))["axes"]
    assert [axis["key"] for axis in axes] == ["aggregator", "fraction"]


def test_command_and_configuration_give_the_runs_of_a_setting(results, document, monkeypatch):
    for setting, packed_setting in zip(results.settings, document["settings"], strict=True):
        expected = [results.manifests[0]["runs"][number] for number in setting.runs]
        program, command, *arguments = shlex.split(packed_setting["command"])
        assert (program, command) == ("fedsim", "run")
        (config,), overrides = split_overrides(arguments)
        by_command = list(map(flatten, read(Path(config), overrides).runs()))
        by_configuration = list(map(flatten, parse(packed_setting["configuration"]).runs()))
        for actual in (by_command, by_configuration):
            assert [report.swept_values.configuration(run) for run in actual] == [
                report.swept_values.configuration(run) for run in expected
            ]


def test_splits_with_different_seeds_are_run_again_as_they_were(tmp_path):
    grid = """
name = "grid"
server.num_rounds = 20
[[sweep]]
data.seed = 0
seed = [0, 1]
[[sweep]]
data.seed = 1
seed = 1
"""
    results = report.load(make_sweep(tmp_path / "a", grid))
    (setting,) = results.settings
    assert setting.draws == ((0, 0), (0, 1), (1, 1))
    assert commands.commands(results) == [""]
    (text,) = commands.setting_tomls(results)
    assert [(config.data.seed, config.seed) for config in parse(text).runs()] == list(setting.draws)
    by_rule = grid.replace("data.seed = 0", 'data.seed = 0\nserver.aggregator = "rfa"')
    for setting, line in zip(
        (results := report.load(make_sweep(tmp_path / "b", by_rule))).settings, commands.commands(results), strict=True
    ):
        (path,), overrides = split_overrides(shlex.split(line)[2:])
        assert [(config.data.seed, config.seed) for config in read(Path(path), overrides).runs()] == list(setting.draws)


def test_clients_weights_are_those_of_the_first_seed(results, document):
    weights = {entry["setting"]: entry for entry in document["weights"]}
    assert {results.settings[setting].aggregator for setting in weights} == {"arfl"}
    assert len(weights) == sum(setting.aggregator == "arfl" for setting in results.settings)
    for entry in weights.values():
        assert (entry["kind"], entry["rounds"], entry["clients"]) == ("alpha", [10, 60], [0, 1, 2])
        assert entry["corrupted"] == [True, False, False]
        alphas = np.asarray([0.05, 0.6, 0.35])
        expected = np.stack([alphas / 10, alphas / 60])
        np.testing.assert_allclose(entry["shares"].reshape(2, 3) / 65534, expected, atol=0.51 / 65534)


def test_lambda_determined_by_the_scenario_is_not_an_axis(tmp_path):
    runs = [run(rule, f, 0, **{"arfl.lam": 1.0 if f else 1e4}) for rule in ("arfl", "rfa") for f in (0.0, 0.3)]
    axes = unpack(read_packed(make_page(report.load(make_folder(tmp_path / "a", runs))), "data"))["axes"]
    assert [axis["key"] for axis in axes] == ["aggregator", "corruption", "fraction"]


def test_a_page_of_chosen_settings(results):
    chosen = report.choose(results, ["arfl.lam"], "validation", "scenario")
    document = unpack(read_packed(make_page(chosen), "data"))
    assert len(document["settings"]) == len(chosen.settings) < len(results.settings)
    assert document["about"]["chosen"] == chosen.selection.sentence
    assert "lam" not in {axis["key"] for axis in document["axes"]}
    confirmed = contents.contents(report.confirm(results, "seed", (1, 2)))
    assert confirmed["about"]["chosen"].startswith("Runs with seed 1, 2 are shown")


def test_many_rounds_and_clients_are_thinned(tmp_path):
    results = report.load(make_folder(tmp_path / "a", [run("fedavg", seed=seed) for seed in (3, 4)]))
    rounds, ids = np.meshgrid(np.arange(1, 251), np.arange(130), indexing="ij")
    weight = np.where((rounds + ids) % 3 == 0, (rounds + ids) / 1000, np.nan)  # a third is in each cohort
    size = rounds.size
    columns = {"run": np.zeros(size), "round": rounds.ravel(), "client_id": ids.ravel(), "weight": weight.ravel()}
    columns |= {"corrupted": ids.ravel() % 2 == 0}
    missing = {name: [None] * size for name in CLIENTS if name not in columns}
    table = pl.DataFrame(columns | missing).cast(CLIENTS).fill_nan(None)
    (actual,) = clients.client_weights(replace(results, clients=table))
    assert (actual.kind, actual.num_rounds, actual.num_clients) == ("weight", 250, 130)
    assert len(actual.rounds) == clients.MAX_ROUNDS
    assert (actual.rounds[0], actual.rounds[-1]) == (1, 250)
    assert len(actual.clients) <= 60
    assert actual.corrupted == [client % 2 == 0 for client in actual.clients]
    expected = weight[np.ix_(np.asarray(actual.rounds) - 1, actual.clients)]
    np.testing.assert_allclose(np.where(actual.shares == 65535, np.nan, actual.shares / 65534), expected, atol=1e-5)


def test_the_page_is_self_contained_and_deterministic(page, results):
    assert make_page(results) == page
    assert "{{" not in page
    assert read_packed(page, "plotly").startswith(b"/**\n* plotly.js")
    outside = re.sub(r'<script type="text/plain".*?</script>', "", page, flags=re.S)
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", outside)
    assert "default-src 'none'" in outside


def test_modules_follow_their_imports():
    static = files("fedsim.report.html") / "static"
    assert {entry.name for entry in static.iterdir()} == {"page.html", "page.css", *(f"{name}.js" for name in MODULES)}
    exported = {}
    for name in MODULES:
        text = (static / f"{name}.js").read_text()
        for names, origin in re.findall(r'^import \{ (.*?) \} from "\./(\w+)\.js";$', text, flags=re.M):
            assert set(names.split(", ")) <= exported[origin]
        exported[name] = set(re.findall(r"^export (?:async )?(?:function|const) (\w+)", text, flags=re.M))
    assert not re.search(r"^(import|export) ", program(), flags=re.M)


def test_on_the_command_line(tmp_path, capsys):
    first, second = (make_folder(tmp_path / name, [run("rfa", seed=seed)]) for seed, name in enumerate("ab"))
    before = {path.name for path in first.path.iterdir()}
    assert main(["report", str(first.path), "--format", "html"]) == 0
    assert {path.name for path in first.path.iterdir()} - before == {"report.html"}
    assert capsys.readouterr().out == f"{first.path / 'report.html'}\n"
    assert main(["report", str(first.path), str(second.path), "--format", "html", "--out", str(tmp_path / "both")]) == 0
    document = unpack(read_packed((tmp_path / "both" / "report.html").read_text(), "data"))
    assert document["about"]["num_runs"] == 2


def test_a_missing_plotly_is_a_one_line_error(tmp_path, capsys, monkeypatch):
    folder = make_folder(tmp_path / "a", [run("rfa")])
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    assert main(["report", str(folder.path), "--format", "html"]) != 0
    error = capsys.readouterr().err
    assert "pip install 'fedsim-jax[html]'" in error
    assert error.count("\n") == 1
