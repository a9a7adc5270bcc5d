"""`fedsim run --dry-run --target`, with compilers that work, fail or are missing."""

import pytest

from fedsim.cli.main import main
from fedsim.engine.layout import Layout
from fedsim.forecast import targets

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


def test_one_line_per_group_and_one_compilation_per_program(config, monkeypatch, capsys):
    """The compiler's part is made up: batches of 16 do not fit, and the compiler itself runs out of memory for 32."""
    needed, compiled = {"8": 8 * 2**20, "16": 2**36, "32": None}, []

    def made_up(plan, family, devices):
        (group, *_) = (group for group, other in zip(plan.groups, plan.families, strict=True) if other is family)
        compiled.append(str(group.configs[0].client.batch_size))
        return Layout(3, 1, client_devices=2), needed[compiled[-1]]

    monkeypatch.setattr("fedsim.cli.plan.fit_layout", made_up)
    monkeypatch.setattr(targets, "devices", lambda target: [object()])
    assert main(["run", config, "--dry-run", "--target", "h100:2", "--sweep.client.batch-size", "8", "16", "32"]) == 0
    shown = capsys.readouterr().out
    assert compiled == list(needed)
    lines = [line.split() for line in shown.splitlines() if "digits" in line]
    assert [line[-2:] for line in lines] == [["MiB", "yes"], ["GiB", "no"], ["?", "no"]] * 3
    assert shown.count("3 x 1") == 9
    assert "9 runs in 9 groups and 3 programs, 3 of 9 groups fit on h100:2" in " ".join(shown.split())


def test_a_failed_compiler_is_reported_and_the_plan_is_shown(config, monkeypatch, capsys):
    def broken(*args):
        raise RuntimeError("no driver\nand more")

    monkeypatch.setattr(targets, "devices", broken)
    assert main(["run", config, "--dry-run", "--target", "v5e"]) == 0
    out, err = capsys.readouterr()
    assert "fedsim: the compiler for v5e fails: RuntimeError: no driver\n" in err
    assert out.count("?") == 6 * 2

    monkeypatch.setattr(targets, "devices", lambda target: [object()])
    monkeypatch.setattr("fedsim.cli.plan.fit_layout", broken)
    assert main(["run", config, "--dry-run", "--target", "v5e", "--slurm.partition", "gpu"]) == 0
    err = capsys.readouterr().err
    assert "no driver" in err
    assert "warning: --slurm: has no effect with --dry-run" in err
