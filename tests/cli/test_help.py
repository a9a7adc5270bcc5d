"""`fedsim init` and `doctor`, and bundled configurations by name."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedsim.cli.list import count_runs, first_sentence
from fedsim.cli.main import main
from fedsim.config import bundled, toml
from tests.cli.test_main import run_error
from tests.datasets.build import write_leaf

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with data files, without a terminal."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    rng = np.random.default_rng(0)
    x, y, ids = rng.normal(size=(220, 3)).astype(np.float32), np.arange(220) % 3, np.arange(200) % 4
    np.savez("mine.npz", x=x[:200], y=y[:200], client_ids=ids, x_test=x[200:], y_test=y[200:])
    write_leaf(Path("leaf/train/a.json"), {"al": {"x": ["to be", "o be "] * 5, "y": [" ", "o"] * 5}})
    write_leaf(Path("leaf/test/a.json"), {"al": {"x": ["be or"], "y": [" "]}})
    return tmp_path


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ("--data-path mine.npz --clients natural --suspect shuffling", ['path = "mine.npz"', "cohort_size = 4"]),
        (
            "--data-path mine.npz --clients 6 --suspect alie",
            ["num_clients = 6", 'attack.kind = "alie"', "cohort_size = 6"],
        ),
        (
            "--data-path leaf --clients natural --suspect none",
            ['path = "leaf"', 'name = "char_lstm"', "cohort_size = 1"],
        ),
        ("--data-path digits --clients 030 --suspect none", ["num_clients = 30"]),
        ("--data-path digits --clients 30 --suspect flipping", ['name = "digits"', 'corruption.kind = "flipping"']),
    ],
)
def test_init_writes_a_configuration(options, lines, folder, capsys):
    assert main(["init", "try.toml", *options.split()]) == 0
    assert "try.toml; `fedsim run try.toml --dry-run`" in capsys.readouterr().out
    text = Path("try.toml").read_text()
    assert set(lines) <= {line.partition("  #")[0] for line in text.splitlines()}
    runs = toml.read(Path("try.toml")).runs()
    assert len(runs) == (9 if "none" in options else 18)
    assert main(["init", "try.toml", *options.split()]) == 2
    assert "exists already; add --force" in capsys.readouterr().err


def test_init_with_a_file_name_that_is_no_name_of_an_experiment(folder):
    options = "--data-path digits --clients 30 --suspect none"
    assert main(["init", "mein Größenversuch.toml", *options.split()]) == 0
    assert toml.read(Path("mein Größenversuch.toml")).name == "mein-Gr--enversuch"


def test_init_asks_again_after_a_wrong_answer_and_suggests_an_answer(folder, monkeypatch, capsys):
    answers = iter(["digist", "mine.npz", "900", "many", "", "typo", ""])
    monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setattr("builtins.input", lambda question: next(answers))
    assert main(["init"]) == 0
    errors = capsys.readouterr().err.splitlines()
    assert [error.split(": ")[2].partition(" ")[0] for error in errors] == [
        "--data-path",
        "--clients",
        "--clients",
        "corruption.kind",
    ]
    text = Path("experiment.toml").read_text()
    assert 'partition = "natural"' in text
    assert 'corruption.kind = "shuffling"' in text


def test_init_asks_for_the_column_of_the_clients(folder, monkeypatch, capsys):
    rows = "".join(f"{i % 7}.5,{'ab'[i % 2]},{'xyz'[i % 3]}\n" for i in range(60))
    Path("visits.csv").write_text(f"age,kind,site\n{rows}")
    answers = iter(["visits.csv", "kind", "sight", "site", "none"])
    monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setattr("builtins.input", lambda question: next(answers))
    assert main(["init"]) == 0
    assert "client must name one column, got 'sight', which 0 columns have" in capsys.readouterr().err
    text = Path("experiment.toml").read_text()
    assert 'client = "site"' in text
    assert 'partition = "natural"' in text


def test_init_for_a_regression(folder, capsys):
    """Numbers have no classes by which a Dirichlet distribution could divide them."""
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    np.savez("numbers.npz", x=x[:40], y=x[:40, :1], x_test=x[40:], y_test=x[40:, :1])
    assert main(["init", "try.toml", "--data-path", "numbers.npz", "--clients", "8", "--suspect", "noisy"]) == 0
    assert "regression" in capsys.readouterr().out
    assert 'partition = "iid"' in Path("try.toml").read_text()
    assert main(["run", "try.toml", "--dry-run"]) == 0
    assert "numbers: regression, since its labels are numbers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "--data-path: must be given, since there is no terminal"),
        ("--data-path mine.npy", "mine.npy: no such file"),
        ("--data-path ~no-user/mine.csv", "~no-user/mine.csv: no such home folder; write the whole path"),
        ("--data-path digist", "got digist; did you mean digits?"),
        ("--data-path digits --clients many --suspect none", "--clients: must be an integer >= 1 or natural, got many"),
        ("--data-path digits --clients 9 --suspect typo", "corruption.kind: must be one of"),
        (
            "--data-path digits --clients natural --suspect none",
            "--clients natural: does not fit digits: data.partition: must",
        ),
        (
            "--data-path digits --clients 900 --suspect none",
            "--clients 900: does not fit digits: data.num_clients or dirich",
        ),
        ("--data-path mine.npz --clients natural --suspect backdoor", "corruption.kind: backdoor: "),
        ("--data digits", "--data: not an argument of `fedsim init`; it is called --data-path now"),
        ("--data-path empty.csv --label b --clients 3 --suspect none", "empty.csv: must have rows, got none"),
        ("other.txt --data-path digits", "FILE: must end in .toml, got other.txt"),
    ],
)
def test_wrong_answers(options, message, folder, capsys):
    Path("empty.csv").write_text("a,b\n")
    assert message in run_error(["init", *options.split()], capsys)
    assert not list(folder.glob("*.toml"))


def test_doctor(data_dirs, capsys, monkeypatch):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for text in ("jax 0.", "cpu", "free of", "prepared data"):
        assert text in printed
    assert str(data_dirs[0]) in "".join(printed.split())
    monkeypatch.setenv("FEDSIM_CACHE_DIR", __file__)
    assert main(["doctor"]) == 0
    assert "is a file" in " ".join(capsys.readouterr().out.split())


def test_doctor_on_a_machine_without_the_plugins_device(tmp_path):
    """As with the extra cuda on a login node: JAX reports with a traceback why the plugin cannot start."""
    plugin = tmp_path / "jax_plugins" / "xla_cuda12"
    plugin.mkdir(parents=True)
    (plugin / "__init__.py").write_text("def initialize():\n    raise RuntimeError('no device:\\n  driver missing')")
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    environment = {key: value for key, value in os.environ.items() if key != "JAX_PLATFORMS"} | {"PYTHONPATH": paths}
    command = [sys.executable, "-m", "fedsim", "doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert "jax_plugins.xla_cuda12.initialize(): no device: driver missing" in line
    assert "cpu" in done.stdout


def test_doctor_lists_missing_packages(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["doctor"]) == 0
    assert "pip install 'fedsim-jax[html]'" in " ".join(capsys.readouterr().out.split())


def test_bundled_configurations_by_name(capsys):
    assert {"quickstart", "paper/lambda", "robustness/forged-reports"} <= set(bundled.names())
    assert toml.read(Path("quickstart")).runs() == toml.read(ROOT / "configs" / "quickstart.toml").runs()
    assert toml.read(Path("configs/quickstart.toml")).name == "quickstart"
    error = run_error(["run", "quikstart"], capsys)
    assert "quikstart: no such file; did you mean quickstart? `fedsim list` lists all" in error
    error = run_error(["run", "table2"], capsys)
    assert "table2: no such file; `fedsim list` describes the bundled ones: paper/table2-cifar10, " in error
    assert "robustness/grid" in error
    Path("quickstart").mkdir()  # a run folder
    assert toml.read(Path("quickstart")).name == "quickstart"
    Path("quickstart").rmdir()
    Path("quickstart").write_text("name = 'mine'")  # a file of that name wins
    assert toml.read(Path("quickstart")).name == "mine"


def test_list(capsys):
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "quickstart (75 runs)\n    Five aggregators on handwritten digits, on clean data and with"
    )
    assert all(f"\n{name} (" in printed for name in bundled.names()[1:])
    assert "\npaper/lambda (14 runs; presets: small, medium, digits)\n    Tuning lambda: " in printed


@pytest.mark.parametrize(
    "text",
    [
        "[[sweep]]\nseed=[0,1]\narfl.lam=[1,2]\n[[sweep]]\nserver.aggregator=['fedavg']\narfl.lam=[1,2]\nseed=[0,0,3]",
        "seed=3\n[[sweep]]\nseed=[2,3]\n[[sweep]]\ndata.seed=[0,1]",
        "",
    ],
)
def test_runs_are_counted_without_seeds(text):
    experiment = toml.parse(text)
    assert count_runs(experiment) == len(experiment.runs())


def test_the_first_sentence_of_a_comment():
    assert first_sentence("# Is Eq. 6\n# right? Yes.\n#\n# More.\nseed = 1\n") == "Is Eq. 6 right?"
