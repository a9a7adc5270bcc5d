"""The command line without running anything: its output, and errors, which are one line and exit code 2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import submitit  # noqa: F401 - here, since its import closes streams of loggers, such as one that pytest captures

import fedsim
from fedsim.cli.main import main
from fedsim.config import toml
from fedsim.config.resolve import schema
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
def config(tmp_path):
    """A configuration in the working directory."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def run_error(arguments, capsys) -> str:
    """The single line of a command that fails."""
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("fedsim: error: ")
    assert printed.err.count("\n") == 1
    return printed.err


def test_welcome_names_the_commands(capsys):
    assert main([]) == 0
    welcome = capsys.readouterr().out
    assert all(f"fedsim {command}" in welcome for command in ("run", "config", "list", "data"))


def test_version_and_help(capsys):
    for arguments, text in ((["--version"], fedsim.__version__), (["run", "--help"], "--sweep.seed 0 1 2")):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 0
        assert text in capsys.readouterr().out


def test_config_prints_the_reference(capsys):
    assert main(["config"]) == 0
    assert capsys.readouterr().out == schema().reference()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu", "x.toml"], "COMMAND: must be a command of fedsim, got rnu; did you mean run?"),
        (["zzz"], "zzz; the commands are run, rate, list, init, config, report"),
        (["run"], "the following arguments are required: CONFIG"),
        (["run", "x.toml", "--dryrun"], "--dryrun; did you mean --dry-run?"),
        (["run", "x.toml", "--out", ""], "--out: must not be followed by an empty argument"),
        (["report", "x", "--out="], "--out: must not be followed by an empty argument"),
        (["run", "x.toml", "--checkpoint-seconds", "many"], "invalid float value: 'many'"),
        (["report"], "the following arguments are required: RUN"),
        (["report", "x", "--formt", "html"], "--formt: not an argument of `fedsim report`; see `fedsim report --help`"),
        (["report", "x", "--format", "word"], "invalid choice: 'word'"),
        (["data", "shwo"], "invalid choice: 'shwo'"),
        (["config", "sever"], "SECTION: must be a section of the configuration, got sever; did you mean server?"),
        (["run", "quickstart", "--server.rounds", "3"], "on the command line: unknown key server.rounds; did you mean"),
    ],
)
def test_wrong_usage(arguments, message, config, capsys):
    assert message in run_error(arguments, capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--model.hidden-sizes [8]", "unknown key model.hidden_sizes; did you mean mlp.hidden_sizes?"),
        ("--client.epochs 2 3", "client.epochs: must be an integer >= 1, got [2, 3]; to run several values, use"),
        ("--arfl.lam=-1e3", "got -1000.0"),
        (
            "--mlp.hidden-sizes 8 wide",
            "mlp.hidden_sizes: must be a list, each element an integer >= 1, got [8, 'wide']",
        ),
        ("--data.partition natural --data.num-train 240", "data.num_train: has no effect: data.partition is"),
        (
            "--server.aggregator lfighter --lfighter.parameters Dense --sweep.server.layerwise false true",
            "lfighter.parameters: has no effect: server.layerwise is true",
        ),
        ("--data.name femnist", "femnist is not prepared in "),
        (
            "--client.augmentation shift_flip --data.name separable_2d",
            'client.augmentation: must be "none" for separable_2d',
        ),
        ("--checkpoint-seconds -1", "--checkpoint-seconds: must be a number >= 0, got -1"),
        (
            "--model cifar10_cnn",
            "of shape (8, 8, 1): x: must be at least 4 x 4 for a 3 x 3 kernel and a pool, got (3, 3); of images",
        ),
        (
            "--corruption.start-round 2 --corruption.end-round 1",
            "corruption.end_round: must be at least corruption.start_round = 2, got 1",
        ),
        ("--corruption.start-round 3", "corruption.start_round: must be at most server.num_rounds = 2, got 3"),
        (
            "--corruption targeted --targeted.source 2",
            "corruption.kind: targeted: source and target must differ, got 2, 2",
        ),
        ("--arfl.lam auto --arfl.target 7", "arfl.target: must be at most 6 for 6 clients (target <= N), got 7"),
        (
            "--sweep.optimal-alie.min-strength 1 200 --attack optimal_alie",
            "optimal_alie: min_strength: must be at most max",
        ),
        ("--strict --server.aggregator fedavg --arfl.lam 3", "arfl.lam: has no effect: no run uses arfl"),
        ("--out small.toml", "small.toml: must be a run folder, got a file"),
        ("--data.name arrays", "arrays.path: must name a folder"),
        ("--out small.toml/deeper", "Not a directory"),
        ("--slurm.partition gpu --force", "--force: must be used without --slurm"),
        ("--slurm.partition gpu --strict", "--strict: must be used without --slurm; add --dry-run"),
        ("--slurm.cluster local --slurm.partitoin gpu", "--slurm: Unknown argument 'partitoin'"),
        ("--target v5e", "--target: must be used with --dry-run"),
        ("--dry-run --target v9", "--target: must be one of v5e,"),
        ("--dry-run --target v5e --strict --zeno.rho 3", "zeno.rho: has no effect"),
        ("--coordinator host:8476", "--coordinator: must be used with all of --coordinator, --num-processes and"),
        ("--coordinator host --num-processes 2 --process-id 1", "--coordinator: must be HOST:PORT, got host"),
        ("--coordinator :8476 --num-processes 2 --process-id 1", "--coordinator: must be HOST:PORT, got :8476"),
        ("--coordinator host:1 --num-processes 0 --process-id 1", "--num-processes: must be an integer >= 1, got 0"),
        (
            "--coordinator host:1 --num-processes 2 --process-id 2",
            "--process-id: must be an integer from 0 to 1, got 2",
        ),
        ("--distributed --slurm.partition gpu", "--distributed: must be used without --slurm"),
    ],
)
def test_errors_in_a_run(arguments, message, config, capsys):
    assert message in run_error(["run", str(config), *arguments.split()], capsys)
    assert not list(config.parent.glob("runs/*/groups"))


def test_a_failing_plugin_is_one_line(config, capsys):
    config.with_name("plugin.py").write_text("def rule():\n    return 1 / 0\n")
    error = run_error(["run", "small.toml", "--server.aggregator", "plugin.py:rule"], capsys)
    assert "plugin.py, line 2: ZeroDivisionError: division by zero" in error


def test_byte_order_marks_are_skipped(config):
    config.write_bytes(b"\xef\xbb\xbf" + SMALL.encode())
    assert toml.read(config).runs() == parse(SMALL, name="small").runs()


def test_exit_codes_and_streams_of_a_process(config):
    """Also with a reader that exits early, as `head` does."""
    command = [sys.executable, "-m", "fedsim"]
    done = subprocess.run([*command, "rnu"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fedsim: error: COMMAND: ")
    assert done.stderr.endswith("rnu; did you mean run?\n")
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "JAX_PLATFORMS": "nowhere"}
    done = subprocess.run([*command, "--help"], capture_output=True, env=ascii_only, check=False)
    assert done.returncode == 0
    done = subprocess.run([*command, "run", str(config)], capture_output=True, text=True, env=ascii_only, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("fedsim: error: JAX finds no nowhere here")
    assert done.stderr.count("\n") == 1
    no_number = {**os.environ, "JAX_NUM_CPU_DEVICES": "zero"}
    done = subprocess.run([*command, "doctor"], capture_output=True, text=True, env=no_number, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith('fedsim: error: Invalid value "zero" for JAX flag jax_num_cpu_devices; change or ')
    assert done.stderr.count("\n") == 1
    closed = f"{sys.executable} -m fedsim init <&- >&-"
    done = subprocess.run(["bash", "-c", closed], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("fedsim: error: --data-path: must be given, since there is no terminal")
    for printing in ("config", "data list"):  # the second by rich
        gone = f"{sys.executable} -m fedsim {printing} | true; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", gone], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "command", [["report", "{}"], ["show", "{}"], ["init", "{}.toml"], ["run", "{}.toml"], ["diff", "{}", "{}"]]
)
def test_errors_of_the_system_have_no_number(command, capsys):
    name = "x" * 300
    error = run_error([word.format(name) for word in command], capsys)
    assert f"{name[:100]}" in error
    assert "File name too long" in error
    assert "Errno" not in error


def test_a_read_only_file_system(config, monkeypatch, capsys):
    def refuse(path, *arguments, **options):
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    data = ["--data-path", "separable_2d", "--clients", "4", "--suspect", "none"]
    assert run_error(["init", "new/try.toml", *data], capsys).endswith(
        "error: new: Read-only file system; use another path\n"
    )
    assert "cannot be created: Read-only file system; choose another --out" in run_error(["run", str(config)], capsys)
