"""Runs every recipe of docs/extending.md: writes files, executes code, applies the diff."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedsim

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "extending.md").read_text()
HEADINGS = re.split(r"^## ", TEXT, flags=re.M)[1:]
RECIPES = {part.splitlines()[0]: re.findall(r"^```python\n(.*?)^```", part, flags=re.M | re.S) for part in HEADINGS}


def test_every_recipe_has_code():
    assert len(RECIPES) == 12
    assert all(RECIPES.values())


@pytest.mark.parametrize("title", RECIPES)
def test_recipe(title, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    modules = set(sys.modules)
    for block in RECIPES[title]:
        first = block.splitlines()[0]
        if first.startswith("# ") and first.endswith(".py"):
            Path(first.removeprefix("# ")).write_text(block)
        else:
            exec(compile(block, title, "exec"), {"__name__": "recipe"})
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and Path(sys.modules[name].__file__).is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.mark.slow
def test_the_diff_adds_a_built_in_rule(tmp_path):
    shutil.copytree(Path(fedsim.__file__).parent, tmp_path / "src" / "fedsim")
    diff = re.search(r"^```diff\n(.*?)^```", TEXT, flags=re.M | re.S)[1]
    changed = [line for line in diff.splitlines() if line.startswith("+++ ")]
    assert len(changed) == 2
    (tmp_path / "rule.diff").write_text(diff)
    subprocess.run(["git", "apply", "rule.diff"], cwd=tmp_path, check=True)
    program = """
import fedsim
from fedsim.config.registry import find
from fedsim.engine.program_key import group_runs
from fedsim.testing import check_aggregator
assert fedsim.__file__.startswith(FOLDER)
check_aggregator(find("server.aggregator", "median_norm").make(factor=1.5))
runs = fedsim.load({}, server__aggregator="median_norm", median_norm__factor=fedsim.sweep([1, 1.5, 2, 3, 5])).runs()
print(len(runs), len(group_runs(runs)))
"""
    folder = repr(str(tmp_path))
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    process = subprocess.run(
        [sys.executable, "-c", program.replace("FOLDER", folder)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == ["5", "1"]
