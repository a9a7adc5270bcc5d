"""The command line without running anything: what it shows, and mistakes, which are one line and exit code 2."""

import os
import subprocess
import sys
import tomllib

import pytest
import submitit  # noqa: F401 - here, since its import closes streams of loggers, such as one that pytest captures

import fedsim
from fedsim.cli.main import main
from fedsim.config import toml
from fedsim.config.toml import parse

SMALL = """
[data]
num_clients = 6
[mlp]
hidden_sizes = [8]
[server]
cohort_size = 4
num_rounds = 2
[[sweep]]
corruption.kind = "shuffling"
corruption.fraction = 0.5
seed = [0, 1]
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    """In a folder that is the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def error_of(arguments, capsys) -> str:
    """The one line that the command ends with."""
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("fedsim: error: ")
    assert printed.err.count("\n") == 1
    return printed.err


def test_welcome_names_the_commands(capsys):
    assert main([]) == 0
    welcome = capsys.readouterr().out
    assert all(f"fedsim {command}" in welcome for command in ("run", "config", "paper", "data"))


def test_version_and_help(capsys):
    for arguments, text in ((["--version"], fedsim.__version__), (["run", "--help"], "--sweep.seed 0 1 2")):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 0
        assert text in capsys.readouterr().out


def test_config_is_a_configuration_with_every_default(capsys):
    assert main(["config"]) == 0
    printed = capsys.readouterr().out
    assert parse(printed).runs() == parse("").runs()
    assert tomllib.loads(printed)["arfl"].keys() >= {"lam"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu", "x.toml"], "no command rnu; did you mean run?"),
        (["zzz"], "no command zzz; the commands are run, init, config, report"),
        (["run"], "the following arguments are required: CONFIG"),
        (["run", "x.toml", "--dryrun"], "no option --dryrun; did you mean --dry-run?"),
        (["run", "x.toml", "y.toml"], "y.toml: one configuration at a time"),
        (["run", "x.toml", "--checkpoint-seconds", "many"], "invalid float value: 'many'"),
        (["run", "nowhere/x.toml"], "nowhere/x.toml: no such file"),
        (["run", "smal.toml"], "smal.toml: no such file; did you mean small.toml?"),
        (["report"], "the following arguments are required: RUN"),
        (["report", "x", "--format", "word"], "invalid choice: 'word'"),
        (["report", "nowhere"], "nowhere: not a run folder"),
        (["paper", "lamda"], "no result lamda; did you mean lambda?"),
        (["data", "shwo"], "invalid choice: 'shwo'"),
        (["config", "more"], "unrecognized arguments: more"),
    ],
)
def test_wrong_usage(arguments, message, config, capsys):
    assert message in error_of(arguments, capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--client.learnig-rate 0.1", "unknown key client.learnig_rate; did you mean client.learning_rate?"),
        ("--clinet.epochs 2", "unknown key clinet.epochs; did you mean client.epochs?"),
        ("--sweep.sede 0 1", "unknown key sede; did you mean seed?"),
        ("--model.hidden-sizes [8]", "unknown key model.hidden_sizes; did you mean mlp.hidden_sizes?"),
        ("--arfl.lamda 3", "unknown key arfl.lamda; did you mean arfl.lam?"),
        ("--sweep.seed 1979-05-27", "seed: expected `int`, got datetime.date(1979, 5, 27)"),
        ("--client.epochs 0", "client.epochs: expected `int` >= 1"),
        ("--client.epochs few", "on the command line: client.epochs: expected `int`, got 'few'"),
        ("--client.epochs 2 3", "client.epochs: takes one value, got 2 3; sweep several with sweep.client.epochs"),
        ("--lam -1", "on the command line: arfl.lam: expected `float` >= 1e-30, got -1"),
        ("--server.num-rounds -5", "server.num_rounds: expected `int` >= 0"),
        ("--arfl.lam=-1e3", "arfl.lam: expected `float` >= 1e-30"),
        ("--sweep.arfl.lam 1 nan", "arfl.lam: expected `float` >= 1e-30"),
        ("--mlp.hidden-sizes 8 wide", "mlp.hidden_sizes: expected `int`, got [8, 'wide']"),
        ("--engine.precision half", 'engine.precision: expected "float32" or "bfloat16", got \'half\''),
        ("--server.aggregator fedavgg", 'server.aggregator: no "fedavgg"; did you mean fedavg?'),
        ("--sweep.server.aggregator arfl majority", 'server.aggregator: no "majority"; choose from fedavg, rfa'),
        ("--server.optimizer adm", 'server.optimizer: no "adm"; did you mean adam?'),
        ("--data.name cifar-10", 'data.name: no "cifar-10"; did you mean cifar10?'),
        ("--model.name own.py:net", "model.name: own.py: no such file"),
        ("--model.name nowhere.own:net", "model.name: nowhere.own cannot be imported: ModuleNotFoundError"),
        ("--model.name fedsim.models.mlp:mpl", "fedsim.models.mlp has no function mpl; did you mean mlp?"),
        ("--budget small", '--budget: no "small"; there are none here'),
        ("--server.cohort-size 7", "server.cohort_size: 7 clients a round, but there are only 6"),
        ("--engine.client-width 5", "engine.client_width: 5 clients in lockstep, but a cohort is only 4"),
        ("--engine.client-devices 3", "engine.client_devices: 3, but the number of devices is 1"),
        ("--corruption.fraction 0.05", "corruption.fraction: 0.05 of 6 clients is nobody"),
        ("--corruption.clients [6]", "corruption.clients: no client 6; the ids are 0 to 5"),
        ("--data.partition natural --data.num-train 240", "data.num_train: has no effect with"),
        ("--data.partition natural", "digits has no natural clients; use data.partition"),
        ("--data.sample-clients 3", "data.sample_clients: has an effect with"),
        ("--data.name femnist", "femnist is not prepared in "),
        ("--client.augmentation shift_flip --data.name plane", "client.augmentation: for images; an input of plane"),
        ("--checkpoint-seconds -1", "--checkpoint-seconds: expected 0 or more, got -1"),
        ("--strict --server.aggregator fedavg --arfl.lam 3", "arfl.lam: has no effect: no run uses arfl"),
        ("--out small.toml", "small.toml: not a run folder but a file; name another"),
        ("--data.name arrays", "arrays.path: names no file; give it an .npz with x, y, x_test, y_test"),
        ("--out small.toml/deeper", "small.toml/deeper: cannot be made: Not a directory"),
        (f"--out {'x' * 300}", "File name too long"),
        ("--slurm.partition gpu --force", "--force: not with --slurm"),
        ("--slurm.cluster local --slurm.jobs few", "--slurm.jobs: expected a number of 1 or more, got few"),
        ("--slurm.cluster local --slurm.partitoin gpu", "--slurm: Unknown argument 'partitoin'"),
        ("--slurm.cluster local --corruption.kind shufling", "did you mean shuffling?"),
    ],
)
def test_mistakes_in_a_run(arguments, message, config, capsys):
    assert message in error_of(["run", str(config), *arguments.split()], capsys)
    assert not list(config.parent.glob("runs/*/parts"))


def test_a_rule_of_the_users_own_that_fails(config, capsys):
    config.with_name("own.py").write_text("def rule():\n    return 1 / 0\n")
    error = error_of(["run", "small.toml", "--server.aggregator", "own.py:rule"], capsys)
    assert "own.py, line 2: ZeroDivisionError: division by zero" in error


def test_a_byte_order_mark_is_no_part_of_a_file(config):
    config.write_bytes(b"\xef\xbb\xbf" + SMALL.encode())
    assert toml.read(config).runs() == parse(SMALL, name="small").runs()


def test_a_process_of_its_own(config):
    """Exit codes and streams; and a reader that has gone, as `head` does."""
    command = [sys.executable, "-m", "fedsim"]
    done = subprocess.run([*command, "rnu"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fedsim: error: no command rnu; did you mean run?\n"
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "JAX_PLATFORMS": "nowhere"}
    done = subprocess.run([*command, "--help"], capture_output=True, env=ascii_only, check=False)
    assert done.returncode == 0
    done = subprocess.run([*command, "run", str(config)], capture_output=True, text=True, env=ascii_only, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("fedsim: error: JAX finds no nowhere here")
    assert done.stderr.count("\n") == 1
    gone = f"{sys.executable} -m fedsim.cli config | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", gone], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
