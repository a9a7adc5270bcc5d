"""`fedsim report` on the command line."""

import csv
import re
from pathlib import Path

import polars as pl
import pytest

import fedsim
from fedsim import report
from fedsim.cli.main import main
from fedsim.config.components import flatten
from fedsim.config.roles import run_id
from fedsim.config.toml import parse
from tests.cli.test_main import run_error
from tests.report.synthetic import GRID, make_folder, synthetic_accuracy


def test_command_line_of_one_folder(tmp_path, capsys, no_figures):
    folder = make_folder(tmp_path / "a", GRID)
    assert main(["report", str(folder.path), "--paired"]) == 0
    printed = capsys.readouterr().out
    assert "Difference to ARFL in test accuracy (percentage points) after 20 rounds" in printed
    for name in ("summary.csv", "paired.csv", "table.md", "table.tex"):
        assert (folder.path / name).exists()
        assert name in printed.replace("\n", "")
    assert main(["report", str(folder.path), "--format", "markdown"]) == 0
    assert capsys.readouterr().out == (folder.path / "table.md").read_text()
    assert main(["report", str(folder.path), "--format", "latex"]) == 0
    assert capsys.readouterr().out == (folder.path / "table.tex").read_text()
    to_rfa = ["--paired", "--baseline", "rfa", "--format", "markdown", "--out", str(tmp_path / "rfa")]
    assert main(["report", str(folder.path), *to_rfa]) == 0
    assert "rule − RFA" in capsys.readouterr().out
    with (tmp_path / "rfa" / "paired.csv").open() as file:
        assert {line["reference"] for line in csv.DictReader(file)} == {"rfa"}


CHANGED = (
    ["--final", "mean:2"],
    ["--final", "mean:1"],
    ["--choose", "client.learning_rate", "--by", "test"],
    ["--confirm", "seed=2..3"],
    ["--baseline", "rfa"],
    ["--final", "best", "--paired"],
)


@pytest.mark.parametrize("options", CHANGED, ids=" ".join)
def test_a_report_of_other_numbers_leaves_the_run_folder_as_it_is(options, tmp_path, capsys, no_figures):
    runs = [r | {"client.learning_rate": rate} for r in GRID for rate in (0.05, 0.1)]
    folder = make_folder(tmp_path / "a", runs, validation=synthetic_accuracy)
    assert main(["report", str(folder.path)]) == 0
    contents = lambda: {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    before = contents()
    capsys.readouterr()
    for form in ("terminal", "markdown"):
        assert main(["report", str(folder.path), *options, "--format", form]) == 0
        printed = capsys.readouterr()
        assert "after 20 rounds" in printed.out or "FedAvg" in printed.out
        assert printed.err == "fedsim: note: nothing was written; --out DIR writes the files of this report\n"
        assert contents() == before
    assert main(["report", str(folder.path), *options, "--out", str(folder.path)]) == 2
    assert "--out: must not be a run folder, whose default report would be overwritten" in capsys.readouterr().err
    assert contents() == before
    other = tmp_path / "deep" / "other"
    assert main(["report", str(folder.path), *options, "--out", str(other)]) == 0
    assert capsys.readouterr().err == ""
    after = contents()
    assert {path: after[path] for path in before} == before
    assert other / "summary.csv" in after


EXPERIMENT = """
name = "made"
server.num_rounds = 40
[[sweep]]
server.aggregator = ["arfl", "fedavg", "rfa"]
seed = [0, 1, 2]
"""


def test_a_configuration_shows_its_runs_alone_up_to_its_rounds(tmp_path, capsys, no_figures):
    """As if a folder had no others; of a longer run, the first rows."""
    every = parse(EXPERIMENT).runs()
    runs, ids = list(map(flatten, every)), list(map(run_id, every))
    folder = make_folder(tmp_path / "a", runs, ids=ids)
    keys = {"server.aggregator": fedsim.sweep(["rfa", "arfl"]), "seed": fedsim.sweep([2, 0]), "server.num_rounds": 20}
    fewer = parse(EXPERIMENT, {"name": "fewer"} | keys)
    expected = report.load(make_folder(tmp_path / "b", list(map(flatten, fewer.runs()))))
    results = report.load(folder, config=fewer)
    assert (results.name, results.runs) == ("fewer", expected.runs)
    assert results.table.equals(expected.table)
    assert report.accuracy_tables(results) == report.accuracy_tables(expected)
    more = parse(EXPERIMENT, {"name": "more", "seed": fedsim.sweep([1, 7])})
    assert len((partial := report.load(folder, config=more)).runs) == 3
    assert partial.notes == (f"Incomplete: {folder.path} lacks 3 of 6 runs of more.",)
    Path("more.toml").write_text(more.dump())
    assert main(["report", "a", "--config", "more.toml", "--format", "markdown"]) == 0
    assert "lacks 3 of 6 runs of more" in capsys.readouterr().out
    assert not list((tmp_path / "a").glob("*.csv"))
    assert main(["report", "a", "--config", "more.toml", "--sweep.seed", "1", "2", "--format", "markdown"]) == 0
    assert "Incomplete" not in capsys.readouterr().out
    assert main(["report", "a", "--config", "quickstart"]) == 2
    assert "a: must have runs of quickstart, but none has its keys" in capsys.readouterr().err


def test_a_run_with_more_rounds_in_one_of_two_folders(tmp_path):
    """Runs of 40 rounds that have 20 are complete as runs of 20; of several folders, the one with most rows counts."""
    experiment = parse(EXPERIMENT)
    ids = list(map(run_id, experiment.runs()))
    shown = lambda rounds: rounds.filter(pl.col("round") <= 20)
    folder = make_folder(
        tmp_path / "a", list(map(flatten, experiment.runs())), ids=ids, is_complete=False, change=shown
    )
    (note,) = report.load(folder, config=experiment).notes
    left = "9 are not: settings are shown up to the last evaluation that all their runs have."
    assert note == f"Incomplete: of {folder.path}, 0 of 9 runs are complete, {left}"
    (note,) = report.load(folder, config=parse(EXPERIMENT, {"server.num_rounds": 30})).notes
    assert note.startswith(f"Incomplete: of {folder.path}, 0 of 9 runs are complete, 9 are not")
    fewer = parse(EXPERIMENT, {"server.num_rounds": 20})
    assert report.load(folder, config=fewer).notes == ()
    longer = make_folder(tmp_path / "b", list(map(flatten, experiment.runs())), ids=ids)
    shorter = make_folder(tmp_path / "c", list(map(flatten, fewer.runs())), ids=ids)
    alone = report.load(longer)
    for first, second in ((longer, shorter), (shorter, longer), (folder, longer)):
        assert (both := report.load(first, second)).table.equals(alone.table)
        assert (both.settings, both.num_repeated) == (alone.settings, 9)
    cut = report.load(shorter, longer, config=fewer)
    assert cut.table.equals(report.load(shorter).table)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "b", "--out", "b"], "--out: must not be a run folder, whose default report would be overwritten"),
        (["a", "--baseline", "cfl"], "--baseline: must be one of arfl, fedavg, rfa, got cfl"),
        (["c", "--paired"], "--paired: must have another rule"),
        (["a", "b", "nowhere"], "nowhere: must be a run folder, but does not exist"),
        (["."], "must be a run folder, but has no runs; it has run folders in it: a, b, c\n"),
        (["a", "--preset", "small"], "--preset: must be used with --config CONFIG"),
        (["a", "--seed", "3"], "--seed: must be used with --config CONFIG"),
        (["a", "b", "--format", "html"], "--format html: must be used with --out DIR"),
        (["d", "--final", "mean:2", "--format", "html"], "--format html: must be used with --out DIR"),
        (["a", "--format", "html", "--paired"], "--format html: must be used without --paired"),
    ],
)
def test_errors_are_one_line_and_exit_2(arguments, message, tmp_path, capsys, no_figures):
    for name, runs in {"a": GRID[:12], "b": GRID[12:], "c": GRID[:4], "d": GRID}.items():
        make_folder(tmp_path / name, runs)
    assert message in run_error(["report", *arguments], capsys)


@pytest.mark.parametrize("text", ["name = 3", "report = 5", 'report.claims = "mine"', "sweep = 5", "name = ["])
def test_a_broken_configuration_is_one_line(text, tmp_path, capsys, no_figures):
    make_folder(tmp_path / "a", GRID[:12], config=text)
    assert main(["report", "a"]) == 2
    assert re.fullmatch(r"fedsim: error: a/configs/made\.toml: broken: .*; delete it\n", capsys.readouterr().err)
