"""`fedsim rate` from the command line to the card, with few attacks and rounds: numbers against the rows themselves."""

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from polars import col
from scipy import stats

import fedsim
from fedsim.cli.main import main
from fedsim.cli.overrides import split_overrides
from fedsim.config import toml
from fedsim.config.adversaries import ADVERSARIES
from fedsim.config.roles import run_id
from fedsim.forecast import estimate
from fedsim.rating import card, checks, costs, protocol
from fedsim.report.render import as_csv
from fedsim.runs.folder import RunFolder
from tests.cli.test_main import run_error
from tests.conftest import load_script

FEW = (
    {"attack.kind": ["gaussian"]},
    {"attack.kind": ["alie"], "alie.sign": ["plus", "minus"]},
)
QUICK = {
    "server.num_rounds": 2,
    "server.eval_every": 2,
    "mlp.hidden_sizes": [4],
    "record.losses": False,
    "client.batch_size": 128,
    "data.partition": "iid",
}
CHOICE, EVALUATION = (50, 51), (60, 61, 62)
RULES = """
import jax.numpy as jnp
from fedsim.aggregators import from_weights

def median():
    squares = lambda report: report.valid * report.num_examples**2.0
    return from_weights(lambda report: squares(report) / jnp.maximum(jnp.sum(squares(report)), 1.0))

def twenty():
    return from_weights(lambda report: jnp.ones(20) / 20 * report.valid)
"""


@pytest.fixture(scope="module")
def rated(tmp_path_factory):
    """The folder of a plug-in that was rated twice, and the files of the first card by suffix."""
    folder = tmp_path_factory.mktemp("rating")
    (folder / "my rules.py").write_text(RULES)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setitem(ADVERSARIES, "standard-1", FEW)
        patch.setitem(protocol.DATA_SETS, "digits", QUICK)
        patch.setitem(protocol.EVALUATED_ON, "digits", EVALUATION)
        patch.setattr(costs, "SIZES", ((20, 100), (100, 100)))
        patch.setattr(card, "SIZES", ((20, 100), (100, 100)))
        command = ["rate", "my rules.py:median", "--out", "runs"]
        assert main(command) == 0
        first = {path.name: path.read_text() for path in (folder / "runs" / "cards").iterdir()}
        assert main(command) == 0
    assert {name.rpartition(".")[0] for name in first} == {"digits-median-my-rules.py-"}
    return folder / "runs", {name.rpartition(".")[2]: text for name, text in first.items()}


def test_a_rule_rated_twice_gives_the_same_card(rated):
    folder, first = rated
    assert first == {path.suffix[1:]: path.read_text() for path in (folder / "cards").iterdir()}
    assert set(first) == {"md", "html", "csv"}


def test_cells_are_means_of_the_worst_attack_of_other_splits(rated):
    folder, first = rated
    final = fedsim.Result(folder).table.filter(col("round") == 2).fill_null("plus")  # the default of `alie.sign`
    final = final.filter(col("corruption.kind") == "none")
    cells = list(csv.DictReader(first["csv"].splitlines()))
    assert [float(cell["share"]) for cell in cells] == [0, 0.1, 0.2, 0.3, 0.4]
    names = {("alie", "plus"): "ALIE (plus)", ("alie", "minus"): "ALIE (minus)"}
    for cell in cells:
        share = float(cell["share"])
        of_cell = final.filter(col("corruption.fraction") == share)
        if share:
            chosen_on = of_cell.filter(col("seed").is_in(CHOICE)).group_by("attack.kind", "alie.sign")
            means = chosen_on.agg(col("test_accuracy").mean(), pl.len()).sort("test_accuracy")
            kind, sign, _, number = means.row(0)
            assert len(means) == 3
            assert number == len(CHOICE)
            assert cell["attack"] == names.get((kind, sign), kind.capitalize().replace("_", " "))
            of_cell = of_cell.filter(col("attack.kind") == kind, col("alie.sign") == sign)
        values = 100 * of_cell.filter(col("seed").is_in(EVALUATION))["test_accuracy"].to_numpy()
        assert len(values) == len(EVALUATION)
        np.testing.assert_allclose(float(cell["mean"]), values.mean(), rtol=1e-5)
        low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
        np.testing.assert_allclose(float(cell["half_width"]), (high - low) / 2, rtol=1e-4)


def test_the_card_has_costs_checks_and_limits(rated):
    folder, first = rated
    milliseconds = json.loads((folder / costs.FILE).read_text())
    assert len(milliseconds) == 4 * 2  # rules x sizes
    assert all(value > 0 for value in milliseconds.values())
    assert "| contract of rules | kept |" in first["md"]
    assert "| published cases of median | median: case" in first["md"]  # this one is no median
    for heading in ("on IID data", "Wrong labels", "What this does not show"):
        assert heading in first["md"]


def test_commands_of_the_card_are_of_the_same_runs(rated, monkeypatch):
    folder, first = rated
    monkeypatch.chdir(folder.parent)
    monkeypatch.setitem(ADVERSARIES, "standard-1", FEW)
    known, named = {run.id for run in RunFolder(folder).runs()}, set()
    lines = [line for line in first["md"].splitlines() if line.startswith("fedsim run")]
    assert len(lines) == 2 + 1 + 4  # attacks, labels; without malicious clients, and with four shares
    for line in lines:
        (_, config, _, preset), overrides = split_overrides(shlex.split(line)[1:])
        named |= {run_id(run) for run in toml.read(Path(config), overrides, preset).runs()}
    assert named == known


def test_the_page_has_the_tables_and_a_figure(rated):
    page = rated[1]["html"]
    assert page.count("<table>") == page.count("</table>") == 5
    assert 'src="data:image/png;base64' in page
    assert "<td>contract of rules</td>" in page


def test_a_change_of_the_plugin_is_refused_but_with_force(rated, monkeypatch, capsys):
    folder, _ = rated
    monkeypatch.chdir(folder.parent)
    monkeypatch.setitem(ADVERSARIES, "standard-1", FEW)
    monkeypatch.setitem(protocol.DATA_SETS, "digits", QUICK)
    monkeypatch.setitem(protocol.EVALUATED_ON, "digits", EVALUATION)
    monkeypatch.setattr(checks, "check", lambda data, keys: [])
    monkeypatch.setattr(costs, "measure", lambda folder, data, keys: [1.0] * len(card.SIZES))
    plugin = folder.parent / "my rules.py"
    plugin.write_text(plugin.read_text() + "\n# changed\n")
    command = ["rate", "my rules.py:median", "--out", "runs"]
    assert main(command) == 2
    assert "my rules.py:median has changed" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    assert (folder / "cards" / "digits-median-my-rules.py-.csv").read_text() == rated[1]["csv"]


def test_a_rule_with_a_reference_keeps_the_contract():
    """Equal updates are not its update, which is no fault."""
    result = checks._contract(protocol.clean_run("digits", {protocol.RULE: "fltrust"}, 1))
    assert result.startswith("kept, but equal updates are not the update: identical: ")


def test_bad_input_is_one_line(tmp_path, capsys):
    fixed = "must be a setting of the rule, since the protocol fixes all else"
    for arguments, message in (
        (["medain"], 'server.aggregator: must be a known name, got "medain"; did you mean median?'),
        (["median", "--data", "mnits"], '--data: must be a known name, got "mnits"; did you mean mnist?'),
        (["median", "--aggregator", "rfa"], "--server.aggregator: must be left out"),
        (["median", "--target", "h100"], "--target: must be used with --dry-run"),
        (["median", "--rounds", "5"], f"--server.num-rounds: {fixed}"),
        (["median", "--seed", "5"], f"--seed: {fixed}"),
        (["median", "--adversary", "standard-1"], f"--adversary: {fixed}"),
        (["median", "--trimmed-mean.num-byzantine", "5"], f"--trimmed-mean.num-byzantine: {fixed}"),
        (["krum", "--krum.num-byzantine", "5"], "--krum.num-byzantine: must be left out; use --server.num-byzantine 5"),
        (["rfa", "--sweep.rfa.eps", "0.1", "1"], "--sweep.rfa.eps: must be one value"),
        (["a/b.py:c", "a-b.py:c"], "RULE: names must differ in letters or digits, since cards are named by these"),
    ):
        assert f": {message}" in run_error(["rate", *arguments], capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_dry_run_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(estimate, "server_seconds", lambda config, dataset, layout: 0.5 * layout.num_devices)
    assert main(["rate", "median", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    planned = [line for line in lines if "would be" in line]
    assert [line.split(" in ")[0] for line in planned] == ["272 runs", "40 runs", "20 runs"]
    assert "20 min for its 48 runs, and at most 33 min for those of the evaluation" in lines[-1]
    assert not list(tmp_path.iterdir())


def test_a_rule_that_fails_for_more_clients_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(costs, "SIZES", ((20, 10), (100, 10)))
    (tmp_path / "rules.py").write_text(RULES)
    for rule in ("mda", f"{tmp_path / 'rules.py'}:twenty"):
        few, many = costs.measure(RunFolder(tmp_path), "digits", {protocol.RULE: rule})
        assert few > 0
        assert "Error: " in many


def test_names_of_plugins_have_their_file():
    name = lambda rule, **settings: protocol.name_of({protocol.RULE: rule} | settings)
    assert name("median") == "Median"
    assert name("a.py:median") == "median (a.py)"
    assert name("rfa", **{"server.pre_aggregators": ["nnm"]}) == "RFA, server.pre_aggregators=nnm"


def test_numbers_that_come_along_are_of_the_protocol():
    cells = card.built_in_cells("digits")
    places = {(cell.partition, cell.share) for cell in cells}
    assert places == {(partition, share / 10) for partition in card.PARTITIONS for share in range(5)}
    assert len(cells) == len({cell.rule for cell in cells}) * len(places)
    assert all((cell.share > 0) == bool(cell.attack) for cell in cells)
    assert card.built_in_cells("other") == []


def test_numbers_that_come_along_are_of_the_committed_runs():
    script = load_script(Path(__file__).parents[2] / "docs" / "results" / "rating.py")
    for runs in (Path(script.HERE) / f"rating-{path.stem}.csv" for path in script.CELLS.glob("*.csv")):
        data, table = runs.stem.removeprefix("rating-"), pl.read_csv(runs)
        cells = list(script.cells(table))
        text = (script.CELLS / f"{data}.csv").read_text()
        assert as_csv([cell._asdict() for cell in cells]) == text
        with Image.open(runs.with_suffix(".png")) as picture:
            assert picture.text[script.DIGEST] == script.digest(text), "run: python docs/results/rating.py"
        page = runs.with_suffix(".md").read_text()
        assert script.page(data, table, cells) == page, "run: python docs/results/rating.py"
