"""The contents of the HTML page: the numbers of each setting, and the command that runs it."""

import json
import re
import shlex
import sys
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
from fedsim.report.html.page import page as make_page
from fedsim.report.names import scenario_name
from fedsim.report.rows import row_names
from fedsim.runs.schemas import CLIENTS
from tests.cli.test_main import run_error
from tests.report.pages import make_sweep, read_page
from tests.report.synthetic import make_folder, run

pytest.importorskip("vl_convert")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return report.load(make_sweep(tmp_path_factory.mktemp("page") / "a"))


@pytest.fixture(scope="module")
def page(results):
    return make_page(results)


@pytest.fixture(scope="module")
def document(page):
    return json.loads(read_page(page))


@pytest.fixture(scope="module")
def pairs(results, document):
    """Each setting of the report with that of the page."""
    entries = {(entry["row"], entry["scenario"]): entry for entry in document["settings"]}
    assert len(entries) == len(document["settings"]) == len(results.settings)
    return [(s, entries[name, scenario_name(s.scenario)]) for s, name in row_names(results.settings).items()]


def test_numbers_of_every_setting(results, pairs):
    """Final means and deviations exactly; curves with four digits."""
    for setting, entry in pairs:
        assert entry["rounds"] == list(setting.rounds)
        rows = results.table.filter(setting=setting.position)
        columns = {"accuracy": "test_accuracy", "loss": "test_loss"}
        for name, scale in (("accuracy", 100), ("loss", 1), ("validation_accuracy", 100), ("corrupted_weight", 100)):
            values = rows[columns.get(name, name)].to_numpy().astype(float).reshape(len(setting.runs), -1) * scale
            final = values[:, -1][np.isfinite(values[:, -1])]
            shown = entry["final"][name]
            assert shown["mean"] == (pytest.approx(final.mean(), rel=1e-12) if len(final) else None)
            if len(final) > 1:
                assert shown["deviation"].startswith("± ")
                assert float(shown["deviation"][2:]) == pytest.approx(final.std(ddof=1), abs=0.051)
            for curve, part in zip(entry["curves"][name], (np.mean, np.min, np.max), strict=True):
                for t, value in enumerate(curve):
                    finite = values[:, t][np.isfinite(values[:, t])]
                    assert value == (pytest.approx(part(finite), rel=1e-3) if len(finite) else None)


def test_the_worst_of_several_threats(document):
    """A setting that diverged is the worst; else the one of the lowest accuracy or the highest loss."""
    settings = document["settings"]
    for metric, sign in (("accuracy", 1), ("loss", -1)):
        cells = document["worst"][metric]
        assert {(cell["row"], cell["share"]) for cell in cells} == {
            (entry["row"], entry["share"]) for entry in settings if entry["threat"] != "Clean"
        }
        for cell in cells:
            group = [e for e in settings if (e["row"], e["share"]) == (cell["row"], cell["share"])]
            diverged = [entry for entry in group if entry["diverged"]]
            worst = diverged[0] if diverged else min(group, key=lambda e: sign * e["final"][metric]["mean"])
            assert settings[cell["setting"]] == worst
            assert (cell["among"], cell["most"]) == (len(group), 3)


def test_names_and_order(document):
    """Clean settings are first, then by share; rows are those of the tables."""
    assert document["rows"] == ["FedAvg", "Median", "ARFL, λ = 0.1 M", "ARFL, λ = 1 M", "ARFL, λ = 10 M"]
    assert (document["threats"], document["shares"]) == (["IPM", "ALIE", "Sign flip", "Shuffling"], ["20 %", "40 %"])
    shares = [entry["share"] for entry in document["settings"]]
    assert shares == sorted(shares)
    assert document["facts"].startswith("Digits · 20 clients · 60 rounds · ")
    assert document["metrics"][0]["how"] == "mean ± standard deviation over 3 seeds of one split, after 60 rounds"


def test_command_and_configuration_give_the_runs_of_a_setting(results, pairs):
    for setting, entry in pairs:
        expected = [results.sources[number][1].keys for number in setting.runs]
        program, command, *arguments = shlex.split(entry["command"])
        assert (program, command) == ("fedsim", "run")
        (config,), overrides = split_overrides(arguments)
        for experiment in (read(Path(config), overrides), parse(entry["toml"])):
            assert [report.keys.configuration(flatten(run)) for run in experiment.runs()] == expected


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
    Path(path).unlink()  # as in a folder of copied groups
    assert not any(commands.commands(results))


def test_clients_weights_are_those_of_the_first_seed(pairs):
    for setting, entry in pairs:
        assert (entry["weights"] is not None) == (setting.aggregator == "arfl")
        if weights := entry["weights"]:
            assert (weights["label"], weights["rounds"]) == ("Weight α among all clients (%)", [10, 60])
            assert weights["byzantine"] == ["0"]
            expected = {str(i): [100 * alpha / t for t in (10, 60)] for i, alpha in enumerate((0.05, 0.6, 0.35))}
            assert weights["clients"] == {i: pytest.approx(values, abs=6e-4) for i, values in expected.items()}


def test_a_page_of_chosen_settings(results):
    chosen = report.choose(results, ["arfl.lam"], "validation", "scenario")
    document = contents.contents(chosen)
    assert len(document["settings"]) == len(chosen.settings) < len(results.settings)
    assert document["rows"] == ["FedAvg", "Median", "ARFL"]
    assert chosen.selection.sentence in document["notes"]
    confirmed = contents.contents(report.confirm(results, "seed", (1, 2)))
    assert confirmed["notes"][0].startswith("Runs with seed 1, 2 are shown")


def test_many_rounds_and_clients_are_thinned(tmp_path, monkeypatch):
    results = report.load(make_folder(tmp_path / "a", [run("fedavg", seed=seed) for seed in (3, 4)]))
    rounds, ids = np.meshgrid(np.arange(1, 251), np.arange(130), indexing="ij")
    weight = np.where((rounds + ids) % 3 == 0, (rounds + ids) / 1000, np.nan)  # a third is in each cohort
    size = rounds.size
    columns = {"run": np.zeros(size), "round": rounds.ravel(), "client_id": ids.ravel(), "weight": weight.ravel()}
    columns |= {"corrupted": ids.ravel() % 4 == 0, "malicious": ids.ravel() % 4 == 2}
    missing = {name: [None] * size for name in CLIENTS if name not in columns}
    table = pl.DataFrame(columns | missing).cast(CLIENTS).fill_nan(None)
    monkeypatch.setattr(report.Results, "clients", table)
    (actual,) = clients.client_weights(results)
    assert actual["label"] == "Weight in the round (%)"
    ids = list(map(int, actual["clients"]))
    assert actual["note"] == f"{len(ids)} of 130 clients, 100 of 250 recorded rounds"
    assert (len(actual["rounds"]), actual["rounds"][0], actual["rounds"][-1]) == (100, 1, 250)
    assert len(ids) <= 60
    assert sorted(map(int, actual["byzantine"])) == [i for i in sorted(ids) if i % 2 == 0]
    shown = np.asarray([actual["clients"][str(i)] for i in ids], float).T
    np.testing.assert_allclose(shown, 100 * weight[np.ix_(np.asarray(actual["rounds"]) - 1, ids)], atol=6e-4)


def test_the_page_is_self_contained_and_deterministic(page, results):
    assert make_page(results) == page
    assert "{{" not in page
    assert "vegaEmbed" in read_page(page, "program")
    outside = re.sub(r'<script type="text/plain".*?</script>', "", page, flags=re.S)
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", outside)
    assert "default-src 'none'" in outside


def test_no_command_has_data_that_were_in_memory(tmp_path):
    config = '[data]\nname = "arrays"\n'
    folder = make_folder(tmp_path / "a", [run("rfa", **{"data.name": "arrays"})], config=config)
    assert commands.commands(report.load(folder)) == [""]


def test_on_the_command_line(tmp_path, capsys):
    first, second = (make_folder(tmp_path / name, [run("rfa", seed=seed)]) for seed, name in enumerate("ab"))
    before = {path.name for path in first.path.iterdir()}
    assert main(["report", str(first.path), "--format", "html"]) == 0
    assert {path.name for path in first.path.iterdir()} - before == {"report.html"}
    assert capsys.readouterr().out == f"{first.path / 'report.html'}\n"
    assert main(["report", str(first.path), str(second.path), "--format", "html", "--out", str(tmp_path / "both")]) == 0
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "report.html").write_text("mine")
    assert main(["report", str(first.path), str(second.path), "--format", "html", "--out", str(tmp_path / "own")]) == 2
    assert (tmp_path / "own" / "report.html").read_text() == "mine"
    (setting,) = json.loads(read_page((tmp_path / "both" / "report.html").read_text()))["settings"]
    assert setting["runs"] == 2


def test_a_missing_library_is_a_one_line_error(tmp_path, capsys, monkeypatch):
    folder = make_folder(tmp_path / "a", [run("rfa")])
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    error = run_error(["report", str(folder.path), "--format", "html"], capsys)
    assert "pip install 'fedsim-jax[html]'" in error
