"""The background runner of Table 2: which runs its groups are, and what it keeps and skips."""

import dataclasses
import sys
from pathlib import Path

import pytest

import fedsim
from fedsim.cli.overrides import split_overrides
from fedsim.config import toml
from tests.conftest import load_script

script = load_script(Path(__file__).parents[2] / "docs" / "results" / "evidence.py")


def test_groups_are_the_runs_of_the_presets():
    runs = {name: [] for name, _ in script.ORDER}
    for _, options in script.groups():
        (_, config, *_), overrides = split_overrides(options)
        runs[Path(config).stem] += toml.read(Path(config), overrides, "medium").runs()
    for name, of_groups in runs.items():
        path = script.make.PAPER / f"{name}.toml"
        expected = fedsim.load(path, preset="medium", record__clients="evaluated").runs()
        comparable = lambda run: repr(dataclasses.replace(run, name=""))
        assert sorted(map(comparable, of_groups)) == sorted(map(comparable, expected))
        assert len(expected) == 90


@pytest.mark.slow
def test_complete_groups_are_kept_and_skipped(tmp_path, monkeypatch, capsys):
    tiny = [f"--{key}={value}" for key, value in {"server.num_rounds": 1, "server.eval_every": 1}.items()]
    command = ["run", "quickstart", "--sweep.seed", "0", "--sweep.server.aggregator", "fedavg", *tiny]
    monkeypatch.setattr(script, "groups", lambda: iter([("table2-digits/fedavg", command)]))
    folders = [word for name in ("work", "rows", "pause") for word in (f"--{name}", str(tmp_path / name))]
    monkeypatch.setattr(sys, "argv", ["evidence.py", *folders])
    script.main()
    kept = fedsim.Result(tmp_path / "rows" / "table2-digits" / "fedavg").rounds
    assert kept.equals(fedsim.Result(tmp_path / "work" / "table2-digits" / "fedavg").rounds)
    monkeypatch.setattr(script, "run", lambda *arguments: pytest.fail("ran a complete group"))
    script.main()
    monkeypatch.setattr(sys, "argv", ["evidence.py", "--list", *folders])
    capsys.readouterr()
    script.main()
    assert capsys.readouterr().out == "complete table2-digits/fedavg\n"
