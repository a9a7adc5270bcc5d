"""`fedsim run` and `fedsim report`, from a configuration to tables, and Ctrl-C in between."""

from pathlib import Path

import pytest

from fedsim import report
from fedsim.cli.main import main
from fedsim.config.toml import parse
from fedsim.engine import make_plan, run_plan
from fedsim.engine.group import GroupRun
from fedsim.runs.folder import RunFolder
from tests.cli.test_main import SMALL
from tests.conftest import check_equal


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def folder(config, tmp_path_factory):
    return run_plan(make_plan(parse(SMALL, name="small")), tmp_path_factory.mktemp("runs") / "small")


def test_a_dry_run_shows_the_plan_and_writes_nothing(config, tmp_path, capsys):
    assert main(["run", str(config), "--sweep.server.aggregator", "fedavg", "arfl", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "4 runs in 2 groups" in printed
    assert all(name in printed for name in ("aggregator", "vectorized", "micro-batch"))  # not cut at 100 columns
    assert "would be written to runs/small-" in printed
    assert not list(tmp_path.iterdir())


def test_run_then_report_again(config, folder, capsys, no_figures):
    """The rows of the library's run, and the same table and files twice."""
    assert main(["run", "--log", "tensorboard", str(config)]) == 0
    printed = capsys.readouterr()
    assert "Shuffling 50 %" in printed.out
    assert "group 1/1 arfl, 2 runs: running" in printed.err
    assert printed.err.splitlines()[0].endswith("2 runs, 4 rounds in total")
    assert "all rounds completed: 4 of 4 rounds" in printed.err.splitlines()[-2]
    assert printed.err.splitlines()[-1].startswith("next: see runs/small-")
    (path,) = Path("runs").iterdir()
    assert path.name.startswith("small-")
    check_equal(RunFolder(path), folder)
    assert len(list((path / "tensorboard").iterdir())) == 2
    written = {file.relative_to(path): file.read_bytes() for file in [*path.glob("*.csv"), *path.glob("table.*")]}
    assert {str(name) for name in written} >= {"summary.csv", "table.md", "table.tex"}
    (path / "summary.csv").unlink()
    assert main(["report", str(path)]) == 0
    assert capsys.readouterr().out == printed.out
    assert {name: (path / name).read_bytes() for name in written} == written
    assert main(["run", str(config)]) == 0
    again = capsys.readouterr()
    assert again.out == printed.out
    assert "all rounds completed: 4 of 4 rounds" in again.err
    assert "running" not in again.err  # nothing was missing
    assert main(["run", str(config), "--dry-run"]) == 0
    assert capsys.readouterr().out == f"nothing to run: {path} has all of 2 runs\n"
    assert main(["run", str(config), "--sweep.seed", "0", "1", "2", "--out", str(path), "--dry-run"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 run in 1 group" in shown
    assert f"would be written to {path}, which has 2 of 3 runs" in shown


def test_another_command_adds_its_runs(config, folder, tmp_path, capsys, no_figures):
    """The seeds of the file, to one that is there; the table shows all."""
    out = RunFolder(tmp_path / "out")
    command = ["run", str(config), "--out", str(out.path)]
    rows = []
    for options, seeds in ((["--seed", "0"], "one seed"), ([], "2 seeds"), (["--seed", "0", "--force"], "2 seeds")):
        assert main([*command, *options]) == 0
        printed = capsys.readouterr()
        assert seeds in printed.out
        assert "group 1/1 arfl, 1 run: running" in printed.err
        rows.append(out.read("rounds").filter(seed=0).drop("run"))
    assert rows[0].equals(rows[1])
    assert rows[0].equals(rows[2])
    assert {run.id for run in out.runs()} == {run.id for run in folder.runs()}


def test_ctrl_c_shows_how_to_resume(config, folder, tmp_path, monkeypatch, capsys):
    out = str(tmp_path / "out")

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(GroupRun, "run", interrupted)
    assert main(["run", str(config), "--out", out]) == 130
    assert capsys.readouterr().err.endswith(f"fedsim: interrupted; {out} is incomplete, the same command resumes it\n")
    assert main(["run", str(config), "--out", out, "--force"]) == 130
    assert "the same command without --force resumes it" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(["report", out]) == 2
    assert "has no rows yet" in capsys.readouterr().err
    monkeypatch.setattr(report, "write", interrupted)
    assert main(["run", str(config), "--out", out]) == 130
    assert f"all rows are written, `fedsim report {out}` shows them" in capsys.readouterr().err
    check_equal(RunFolder(Path(out)), folder)
    monkeypatch.setattr(report, "load", interrupted)
    assert main(["report", out]) == 130
    assert capsys.readouterr().err == "fedsim: interrupted\n"
