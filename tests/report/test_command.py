"""`fedsim report` on the command line."""

import csv

import pytest

from fedsim.cli.main import main
from tests.report.synthetic import GRID, make_folder


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
    assert main(["report", str(folder.path), "--paired", "--baseline", "rfa", "--format", "markdown"]) == 0
    assert "rule − RFA" in capsys.readouterr().out
    with (folder.path / "paired.csv").open() as file:
        assert {line["reference"] for line in csv.DictReader(file)} == {"rfa"}


def test_command_line_of_several_folders(tmp_path, capsys, no_figures):
    first, second = make_folder(tmp_path / "a", GRID[:12]), make_folder(tmp_path / "b", GRID[12:])
    before = sorted(tmp_path.rglob("*"))
    assert main(["report", str(first.path), str(second.path)]) == 0
    assert "Shuffling 50 %" in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before  # the table is shown, nothing is written
    assert main(["report", str(first.path), str(second.path), "--out", str(tmp_path / "deep" / "both")]) == 0
    written = {path.name for path in (tmp_path / "deep" / "both").rglob("*")}
    assert {"summary.csv", "paired.csv", "table.md", "table.tex"} <= written


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "b", "--out", "b"], "--out: must not be another run folder"),
        (["a", "--baseline", "cfl"], "--baseline: must be one of arfl, fedavg, rfa, got cfl"),
        (["c", "--paired"], "--paired: must have another rule"),
        (["a", "b", "nowhere"], "nowhere: must be a run folder"),
        (["a", "--format", "pdf"], "invalid choice"),
        (["a", "b", "--format", "html"], "--format html: must be used with --out DIR"),
        (["a", "--confirm", "data.seed=0"], "--confirm: must be used with --out DIR"),
        (["a", "--format", "html", "--paired"], "--format html: must be used without --paired"),
    ],
)
def test_errors_are_one_line_and_exit_2(arguments, message, tmp_path, monkeypatch, capsys, no_figures):
    monkeypatch.chdir(tmp_path)
    for name, runs in {"a": GRID[:12], "b": GRID[12:], "c": GRID[:4]}.items():
        make_folder(tmp_path / name, runs)
    assert main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
