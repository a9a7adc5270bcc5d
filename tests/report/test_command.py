"""`fedsim report` on the command line."""

import csv

import pytest

from fedsim import report
from fedsim.cli.main import main
from fedsim.errors import ConfigError
from fedsim.report.final import Final
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


def test_command_line_of_several_folders(tmp_path, capsys, no_figures):
    first, second = make_folder(tmp_path / "a", GRID[:12]), make_folder(tmp_path / "b", GRID[12:])
    before = sorted(tmp_path.rglob("*"))
    assert main(["report", str(first.path), str(second.path)]) == 0
    assert "Shuffling 50 %" in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before  # the table is shown, nothing is written
    assert main(["report", str(first.path), str(second.path), "--out", str(tmp_path / "deep" / "both")]) == 0
    written = {path.name for path in (tmp_path / "deep" / "both").rglob("*")}
    assert {"summary.csv", "paired.csv", "table.md", "table.tex"} <= written


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
    assert main(["report", str(folder.path), *options, "--out", str(tmp_path / "other")]) == 0
    assert capsys.readouterr().err == ""
    after = contents()
    assert {path: after[path] for path in before} == before
    assert tmp_path / "other" / "summary.csv" in after


def test_a_report_of_other_numbers_is_not_written_into_a_run_folder_from_python_either(tmp_path, no_figures):
    folder = make_folder(tmp_path / "a", GRID)
    for results in (report.load(folder, final=Final("mean", 2)), report.confirm(report.load(folder), "seed", (1,))):
        with pytest.raises(ConfigError, match="--out: must not be a run folder"):
            report.write(results, folder)
    with pytest.raises(ConfigError, match="--out: must not be a run folder"):
        report.write(report.load(folder), folder, baseline="rfa")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "b", "--out", "b"], "--out: must not be a run folder, whose default report would be overwritten"),
        (["a", "--baseline", "cfl"], "--baseline: must be one of arfl, fedavg, rfa, got cfl"),
        (["c", "--paired"], "--paired: must have another rule"),
        (["a", "b", "nowhere"], "nowhere: must be a run folder"),
        (["a", "--preset", "small"], "--preset: must be used with --config CONFIG"),
        (["a", "--format", "pdf"], "invalid choice"),
        (["a", "b", "--format", "html"], "--format html: must be used with --out DIR"),
        (["d", "--final", "mean:2", "--out", "d"], "--out: must not be a run folder"),
        (["d", "--final", "mean:2", "--format", "html"], "--format html: must be used with --out DIR"),
        (["a", "--format", "html", "--paired"], "--format html: must be used without --paired"),
    ],
)
def test_errors_are_one_line_and_exit_2(arguments, message, tmp_path, monkeypatch, capsys, no_figures):
    monkeypatch.chdir(tmp_path)
    for name, runs in {"a": GRID[:12], "b": GRID[12:], "c": GRID[:4], "d": GRID}.items():
        make_folder(tmp_path / name, runs)
    assert main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
