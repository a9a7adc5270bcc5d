"""`fedsim rate` from the command line to the card, with few attacks and rounds: numbers against the rows themselves."""

import csv
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars import col
from scipy import stats

import fedsim
from fedsim.cli.main import main
from fedsim.cli.overrides import split_overrides
from fedsim.config import toml
from fedsim.config.adversaries import ADVERSARIES
from fedsim.config.roles import run_id
from fedsim.rating import card, costs, protocol
from fedsim.runs.folder import RunFolder

FEW = (
    {"attack.kind": ["sign_flip", "gaussian"]},
    {"attack.kind": ["alie"], "alie.sign": ["plus", "minus"]},
)
QUICK = (
    "--server.num-rounds",
    "2",
    "--server.eval-every",
    "2",
    "--mlp.hidden-sizes",
    "4",
    "--batch-size",
    "128",
    "--partition",
    "iid",
)
CHOICE, EVALUATION = (50, 51), (60, 61, 62, 63, 64)


@pytest.fixture(scope="module")
def rated(tmp_path_factory):
    """The folder of a plug-in that was rated twice, and the files of the first card."""
    folder = tmp_path_factory.mktemp("rating")
    (folder / "rules.py").write_text(
        "import jax.numpy as jnp\n"
        "from fedsim.aggregators import from_weights\n"
        "def squared_examples():\n"
        "    squares = lambda report: report.valid * report.num_examples**2.0\n"
        "    return from_weights(lambda report: squares(report) / jnp.maximum(jnp.sum(squares(report)), 1.0))\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setitem(ADVERSARIES, "standard-1", FEW)
        patch.setattr(costs, "SIZES", ((20, 100), (100, 100)))
        patch.setattr(card, "SIZES", ((20, 100), (100, 100)))
        command = ["rate", "rules.py:squared_examples", *QUICK, "--out", "runs"]
        assert main(command) == 0
        first = {path.name: path.read_bytes() for path in (folder / "runs" / "cards").iterdir()}
        assert main(command) == 0
    return folder / "runs", first


def test_a_rule_rated_twice_gives_the_same_card(rated):
    folder, first = rated
    again = {path.name: path.read_bytes() for path in (folder / "cards").iterdir()}
    assert again == first
    assert {path.rpartition(".")[2] for path in first} == {"md", "html", "csv"}


def test_cells_are_means_of_the_worst_attack_of_other_splits(rated):
    folder, _ = rated
    final = fedsim.Result(folder).table.filter(col("round") == 2).fill_null("plus")  # the default of `alie.sign`
    final = final.filter(col("corruption.kind") == "none")
    cells = list(csv.DictReader((folder / "cards" / "cells.csv").open()))
    assert [float(cell["share"]) for cell in cells] == [0, 0.1, 0.2, 0.3, 0.4]
    names = {("alie", "plus"): "ALIE (plus)", ("alie", "minus"): "ALIE (minus)"}
    for cell in cells:
        share = float(cell["share"])
        of_cell = final.filter(col("corruption.fraction") == share)
        if share:
            chosen_on = of_cell.filter(col("seed").is_in(CHOICE)).group_by("attack.kind", "alie.sign")
            means = chosen_on.agg(col("test_accuracy").mean(), pl.len()).sort("test_accuracy")
            kind, sign, _, number = means.row(0)
            assert len(means) == 4
            assert number == len(CHOICE)
            assert cell["attack"] == names.get((kind, sign), kind.capitalize().replace("_", " "))
            of_cell = of_cell.filter(col("attack.kind") == kind, col("alie.sign") == sign)
        values = 100 * of_cell.filter(col("seed").is_in(EVALUATION))["test_accuracy"].to_numpy()
        assert len(values) == len(EVALUATION)
        np.testing.assert_allclose(float(cell["mean"]), values.mean(), rtol=1e-5)
        low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
        np.testing.assert_allclose(float(cell["half_width"]), (high - low) / 2, rtol=1e-4)


def test_the_card_has_costs_checks_limits_and_commands(rated):
    folder, first = rated
    text = next(text.decode() for name, text in first.items() if name.endswith(".md"))
    milliseconds = json.loads((folder / costs.FILE).read_text())
    assert len(milliseconds) == 4 * 2
    assert all(value > 0 for value in milliseconds.values())
    assert "| contract of aggregators | kept |" in text
    assert "equal in" not in text
    for heading in ("on IID data", "Wrong labels", "What this does not show"):
        assert heading in text
    commands = [line for line in text.splitlines() if line.startswith("fedsim run rating")]
    assert len(commands) == 1 + 4
    assert "--corruption.fraction 0.1 --attack.kind" in commands[1]


def test_commands_of_the_card_are_of_the_same_runs(rated):
    folder, first = rated
    text = next(text.decode() for name, text in first.items() if name.endswith(".md"))
    known = {run.id for run in RunFolder(folder).runs()}
    for line in text.splitlines():
        if line.startswith("fedsim run rating"):
            (_, config, _, preset), overrides = split_overrides(line.split()[1:])
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder.parent)
                runs = toml.read(Path(config), overrides, preset).runs()
            assert len(runs) == len(EVALUATION)
            assert {run_id(run) for run in runs} <= known


def test_the_page_is_well_formed(rated):
    open_tags = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            if tag not in ("meta", "img", "link"):
                open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    _, first = rated
    reader = Reader()
    page = next(text.decode() for name, text in first.items() if name.endswith(".html"))
    reader.feed(page)
    assert open_tags == []
    assert page.count("<table>") == 5
    assert "data:image/png;base64" in page


def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for arguments, message in (
        (["medain"], 'server.aggregator: must be a known name, got "medain"; did you mean median?'),
        (["median", "--data", "mnits"], '--data: must be a known name, got "mnits"; did you mean mnist?'),
        (["median", "--aggregator", "rfa"], "--server.aggregator: must be left out"),
        (["median", "--target", "h100"], "--target: must be used with --dry-run"),
    ):
        assert main(["rate", *arguments]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"fedsim: error: {message}")
        assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_dry_run_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["rate", "median", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert [line.split(" in ")[0] for line in shown.splitlines() if "would be" in line] == [
        "272 runs",
        "40 runs",
        "10 runs",
    ]
    assert not list(tmp_path.iterdir())


def test_a_rule_that_needs_fewer_clients_has_no_costs_for_more(tmp_path, monkeypatch):
    monkeypatch.setattr(costs, "SIZES", ((20, 10), (100, 10)))
    ((few, many),) = costs.measure(RunFolder(tmp_path), "digits", [{"server.aggregator": "mda"}])
    assert few > 0
    assert many is None


def test_built_in_cells_are_of_the_protocol():
    cells = card.built_in_cells("digits")
    assert {cell.partition for cell in cells} == set(card.PARTITIONS)
    assert card.built_in_cells("other") == []
    assert set(protocol.DATA_SETS) == {"digits", "mnist"}
