"""`fedsim show` and `fedsim diff`: what they say of complete, incomplete and broken folders."""

import os
import shutil
import subprocess
import sys
import time

import polars as pl
import pytest

import fedsim
from fedsim import report
from fedsim.cli.main import main
from fedsim.config.toml import parse
from fedsim.engine import make_plan, run_plan
from fedsim.errors import RunFolderError
from fedsim.runs.folder import RunFolder
from fedsim.runs.groups import Record
from tests.cli.test_main import SMALL, run_error
from tests.conftest import Stop
from tests.report import synthetic


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two that differ in their learning rate, and one that was interrupted."""
    path = tmp_path_factory.mktemp("runs")
    run_plan(make_plan(parse(SMALL)), path / "first")
    plan = make_plan(parse(SMALL, {"client.learning_rate": 0.01, "seed": fedsim.sweep([0, 1])}))
    run_plan(plan, path / "second")
    with pytest.raises(KeyboardInterrupt):
        run_plan(make_plan(parse(SMALL)), path / "cut", [Stop(1)], checkpoint_seconds=0)
    for age, name in enumerate(("second", "first", "cut")):
        then = time.time() - 3600 * (age + 3)
        for group in (path / name / "groups").iterdir():
            os.utime(group, (then, then))
    return path


def test_show_lists_folders(folders, monkeypatch, capsys):
    monkeypatch.chdir(folders)
    assert main(["show", "."]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
    text = "".join("".join(row.split()) for row in rows)
    assert text.index("second") < text.index("first") < text.index("cut")
    assert "complete│3.0h│2│" in text
    assert "stopped" in text
    assert "ARFL,Shuffling50%" in text


def test_show_names_the_best_rule_of_the_hardest_scenario_without_failed_runs(tmp_path, capsys):
    """Rules are equal, and worse, without corrupted clients; under shuffling, the best rule has diverged."""
    level = {"fedavg": 0.5, "rfa": 0.7, "arfl": 0.8}
    value = lambda run, t: 0.6 if not run["corruption.fraction"] else level[run["server.aggregator"]]
    lost = lambda run: run["server.aggregator"] == "arfl" and run["corruption.fraction"] > 0
    runs = [synthetic.run(rule, share) for share in (0.0, 0.3) for rule in level]
    synthetic.make_folder(tmp_path / "a", runs, value, lost)
    synthetic.make_folder(tmp_path / ("long" * 20), [*runs[:3]], value)
    assert main(["show", "."]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("70.00 RFA, Shuffling 30 %" in line for line in lines)
    names = "".join(line.split("│")[1].strip() for line in lines if line.startswith("│"))
    assert "long" * 20 in names
    best = " ".join(line.split("│")[-2].strip() for line in lines if line.startswith("│"))
    assert "60.00 FedAvg and 2 more, Clean" in " ".join(best.split())


@pytest.mark.parametrize(
    ("complete", "failed", "best"),
    [("fedavg", "", "50.00 FedAvg"), ("", "", "80.00 ARFL"), ("fedavg", "fedavg", "80.00 ARFL")],
)
def test_show_names_the_best_of_settings_that_have_most_rounds(complete, failed, best, tmp_path, capsys):
    """If none is complete, those that lack the fewest."""
    level = {"fedavg": 0.5, "rfa": 0.7, "arfl": 0.8}
    late = (pl.col("round") == 20) & (pl.col("aggregator") != complete)
    synthetic.make_folder(
        tmp_path / "a",
        [synthetic.run(rule, 0.3) for rule in level],
        lambda run, t: level[run["server.aggregator"]],
        lambda run: run["server.aggregator"] == failed,
        is_complete=False,
        change=lambda rounds: rounds.filter(~late),
    )
    assert main(["show", "."]) == 0
    assert best in capsys.readouterr().out


def test_report_of_a_folder_of_another_user(folders, monkeypatch, capsys):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert main(["report", str(folders / "first")]) == 0
    shown = capsys.readouterr()
    assert "Test accuracy" in shown.out
    assert "nothing was written; --out DIR writes the files of this report" in shown.err


@pytest.mark.parametrize("option", ["--confirm", "--baseline", "--preset"])
def test_an_empty_option_is_not_left_out(option, folders, capsys):
    """As of a shell variable that is not set."""
    error = run_error(["report", str(folders / "first"), option, "", "--paired"], capsys)
    assert error.startswith(f"fedsim: error: {option}: ")


def test_show_starts_without_jax(folders):
    """JAX takes a second to import."""
    program = "import sys; from fedsim.cli.main import main; main(['show', '.']); print('jax' in sys.modules)"
    command = [sys.executable, "-c", program]
    shown = subprocess.run(command, cwd=folders, capture_output=True, text=True, check=True).stdout
    assert "complete" in shown
    assert shown.splitlines()[-1] == "False"


def test_show_lists_broken_folders(tmp_path, capsys):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "manifest.json").write_text("{}")
    (tmp_path / "new" / "groups" / "a").mkdir(parents=True)
    (tmp_path / "new" / "groups" / "a" / "group.json").write_text("{}")
    assert main(["show", "."]) == 2
    assert " ".join(capsys.readouterr().out.split()).count("broken: ") == 2


@pytest.mark.parametrize(("name", "kind"), [("first", "rounds"), ("cut", "clients")])
def test_a_flipped_bit_or_a_missing_end_is_reported(kind, name, folders, tmp_path, capsys):
    """Parquet alone notices about half of them."""
    shutil.copytree(folders / name, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    (path, *_) = sorted(folder.path.glob(f"groups/*/*-{kind}.parquet"))
    expected, data = folder.read(kind), path.read_bytes()
    for position in range(0, len(data), max(1, len(data) // 100)):
        for damaged in (data[:position] + bytes([data[position] ^ 16]) + data[position + 1 :], data[:position]):
            path.write_bytes(damaged)
            with pytest.raises(
                RunFolderError, match=rf"{kind}\.parquet: broken: .*; delete it and run again, which computes"
            ):
                folder.read(kind)
    assert main(["report", str(folder.path)]) == 2
    assert f"{path}: broken: it does not match its checksum; delete it and run again" in capsys.readouterr().err
    assert main(["show", str(folder.path)]) == (2 if name == "first" else 0)
    assert "broken: it does not" in " ".join(capsys.readouterr().out.replace("│", " ").split())
    if name == "first":
        path.unlink()
        run_plan(make_plan(parse(SMALL)), folder.path)
        assert folder.read(kind).equals(expected)


def test_broken_measurements_are_reported_though_no_report_shows_them(tmp_path):
    folder = synthetic.make_folder(tmp_path / "run", synthetic.GRID[:1])
    (path,) = folder.path.glob("groups/*/*-info.parquet")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunFolderError, match=r"info\.parquet: broken: it does not match its checksum"):
        report.load(folder)


def test_show_says_what_settings_lack(tmp_path, capsys):
    """Two of three seeds are complete after four rounds, the third has rows up to the second, and the fourth none."""
    make = lambda rule, seeds, rounds: [synthetic.run(rule, 0.3, s, **{"server.num_rounds": rounds}) for s in seeds]
    folder = synthetic.make_folder(tmp_path / "[run]", make("arfl", (0, 1), 10) + make("rfa", (0, 1), 10))
    for seed in (2, 3):
        (run,) = make("arfl", (seed,), 10)
        index = {"id": f"{seed}", "position": seed, "num_clients": 20}
        group = folder.add_group("cut", Record(1.0, [index | run], {}, [synthetic.ENVIRONMENT]))
        if seed == 2:
            rounds = folder.read("rounds")[:1].with_columns(run=pl.lit("2"))
            group.write_rows(0, 4, {"rounds": rounds})
    assert main(["show", str(folder.path)]) == 0
    text = "".join(capsys.readouterr().out.split())
    assert "[run]:" in text
    assert "73%,stopped" in text  # 4 x 10 + 4 of 60 rounds
    assert "ARFL│Shuffling30%│10│2of4runs│seed2(has4rounds),seed3(norows)│" in text
    assert "RFA│Shuffling30%│10│2of2runs││" in text


def test_show_counts_settings_of_one_state_if_there_are_many(tmp_path, capsys):
    folder = synthetic.make_folder(tmp_path / "a", [synthetic.run("rfa")])
    rates = [synthetic.run("arfl", **{"client.learning_rate": 0.1 + i / 100}) for i in range(60)]
    index = [{"id": f"{i}", "position": 1 + i, "num_clients": 20} | run for i, run in enumerate(rates)]
    folder.add_group("cut", Record(1.0, index, {}, [synthetic.ENVIRONMENT]))
    assert main(["show", str(folder.path)]) == 0
    assert "│60settings││20│0of1run│seed0(norows)│" in "".join(capsys.readouterr().out.split())


def test_show_names_what_is_no_run_folder_among_others(folders, capsys):
    error = run_error(["show", str(folders / "first"), "nope", "empty"], capsys)
    assert error == "fedsim: error: nope empty: no run folders found; create one with `fedsim run`\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("empty", "empty: no run folders found; create one with `fedsim run`"),
        ("nope", "nope: no run folders found; create one with `fedsim run`"),
        ("file", "DIR: must be a run folder or a folder of run folders, got the file file"),
    ],
)
def test_show_without_a_run_folder(name, message, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    assert run_error(["show", name], capsys) == f"fedsim: error: {message}\n"


def test_diff(folders, monkeypatch, capsys):
    monkeypatch.chdir(folders)
    assert main(["diff", "first", "second"]) == 0
    printed = "".join(capsys.readouterr().out.split())
    assert "client.learning_rate│" in printed
    assert "│0.1│0.01│" in printed
    assert "ARFL,Shuffling50%│" in printed
    assert main(["diff", "first", "first"]) == 0
    assert capsys.readouterr().out == "No key differs.\nNo results differ.\n"
    assert main(["diff", "first", "nowhere"]) == 2


def test_diff_of_a_folder_that_sweeps_a_key_more(tmp_path, monkeypatch, capsys):
    """Equal settings have one name, though the rate is part of the names of one folder only."""
    runs = [synthetic.run("rfa", 0.3, **{"client.learning_rate": rate}) for rate in (0.05, 0.3)]
    for name, of_folder in (("a", runs), ("b", runs[1:])):
        synthetic.make_folder(tmp_path / name, of_folder, synthetic.synthetic_accuracy)
    monkeypatch.chdir(tmp_path)
    assert main(["diff", "a", "b"]) == 0
    printed = "".join(capsys.readouterr().out.split())
    assert "client.learning_rate=0.05" in printed
    assert printed.count("missing") == 1
    assert printed.endswith("1of2settingshavethesameresults.")
