"""A plug-in becomes a built-in rule as docs/extending.md says; test_pages.py runs the recipes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedsim
from tests.docs.pages import blocks

MODULES = """
from fedsim.aggregators.weighting import from_weights
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import Traced
from fedsim.core.types import Scalar
"""
PROGRAM = """
import fedsim
from fedsim.config.registry import find
from fedsim.engine.program_key import group_runs
from fedsim.testing import check_aggregator
assert fedsim.__file__.startswith({folder!r})
check_aggregator(find("server.aggregator", "best_half").make(keep=0.3))
runs = fedsim.load({{}}, server__aggregator="best_half", best_half__keep=fedsim.sweep([0.3, 0.5, 0.7])).runs()
print(len(runs), len(group_runs(runs)))
"""


@pytest.mark.slow
def test_a_file_and_a_name_add_a_built_in_rule(tmp_path):
    source = tmp_path / "src" / "fedsim"
    shutil.copytree(Path(fedsim.__file__).parent, source)
    rule = next(block.text for block in blocks("docs/tutorials/own-rule.md") if block.file == "best_half.py")
    lines = [line for line in rule.splitlines(keepends=True) if not line.startswith("from fedsim")]
    (source / "aggregators" / "best_half.py").write_text(MODULES + "".join(lines))
    kinds = source / "config" / "kinds.py"
    kinds.write_text(kinds.read_text().replace("foolsgold flame", "foolsgold flame best_half"))
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    command = [sys.executable, "-c", PROGRAM.format(folder=str(tmp_path))]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == ["3", "1"]
