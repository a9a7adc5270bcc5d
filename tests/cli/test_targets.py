"""`fedsim run --dry-run --target`, with compilers that work, fail or are missing."""

import pytest

from fedsim.cli.main import main
from fedsim.engine import targets
from fedsim.engine.forecast import Forecast

CONFIG = """
[data]
num_clients = 4
[server]
cohort_size = 2
num_rounds = 2
[[sweep]]
server.aggregator = ["fedavg", "rfa", "arfl"]
client.batch_size = [8, 16]
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text(CONFIG)
    return str(path)


def test_one_line_per_group_and_one_compilation_per_family(config, monkeypatch, capsys):
    """The compiler's part is made up: only B decides here."""
    calls = []

    def made_up(plan, group, devices, chip):
        calls.append(group)
        size = plan.configs(group)[0].client.batch_size
        return Forecast(group.layout, size == 8, size * 2**20, 2.0, 3e9, 4e9, 0.5, 10 * size)

    monkeypatch.setattr("fedsim.cli.targets.forecast", made_up)
    monkeypatch.setattr(targets, "devices", lambda target: [object()])
    assert main(["run", config, "--dry-run", "--target", "h100:2"]) == 0
    shown = capsys.readouterr().out
    assert len(calls) == 2
    assert shown.count("yes") == shown.count(" no ") == 3
    assert shown.count("like 1") == shown.count("like 2") == 2
    assert "8 MiB" in shown
    assert "6 runs in 6 groups: at least 12 min on h100:2; compiled here in 4 s" in shown


def test_a_failed_compiler_is_reported_and_the_plan_is_shown(config, monkeypatch, capsys):
    def broken(*args):
        raise RuntimeError("no driver\nand more")

    monkeypatch.setattr(targets, "devices", broken)
    assert main(["run", config, "--dry-run", "--target", "v5e"]) == 0
    out, err = capsys.readouterr()
    assert "fedsim: the compiler for v5e fails: RuntimeError: no driver\n" in err
    assert out.count("?") == 6 * 7

    monkeypatch.setattr(targets, "devices", lambda target: [object()])
    monkeypatch.setattr("fedsim.cli.targets.forecast", broken)
    assert main(["run", config, "--dry-run", "--target", "v5e", "--slurm.partition", "gpu"]) == 0
    err = capsys.readouterr().err
    assert "no driver" in err
    assert "warning: --slurm: has no effect with --dry-run" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "v5e"], "--target: must be used with --dry-run"),
        (["--dry-run", "--target", "v9"], "--target: must be one of v5e,"),
        (["--dry-run", "--target", "v5e:7"], "--target: must be v5e with one of"),
        (["--dry-run", "--target", "v5e", "--strict", "--zeno.rho", "3"], "zeno.rho: has no effect"),
    ],
)
def test_errors_are_one_line(config, capsys, arguments, message):
    assert main(["run", config, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"fedsim: error: {message}")
    assert err.count("\n") == 1
