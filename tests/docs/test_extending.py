"""A plug-in becomes a built-in rule as docs/extending.md says; test_pages.py runs the recipes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedsim
from tests.docs.pages import ROOT, blocks

MODULES = """
from fedsim.aggregators.weighting import from_weights
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import Traced
from fedsim.core.types import Scalar
"""
PROGRAM = """
import fedsim, pytest
from fedsim.cli.main import main
from tests.aggregators import test_equivariance
from tests.testing.test_built_in import test_with_defaults

assert fedsim.__file__.startswith({folder!r})
with pytest.raises(ValueError, match="^keep: must be a number > 0 and <= 1, got 2"):
    fedsim.aggregators.best_half(keep=2)
assert len(fedsim.load({{}}, server__aggregator="best_half", best_half__keep=fedsim.sweep([0.3, 0.5])).runs()) == 2
assert main(["config"]) == 0  # lists its settings
assert main(["run", "unknown.toml"]) == 2  # lists its name
assert ("server.aggregator", "best_half") in test_with_defaults.pytestmark[0].args[1]
test_with_defaults("server.aggregator", "best_half")
with pytest.raises(AssertionError):
    test_equivariance.test_all_rules_are_in_the_table()
test_equivariance.RULES["best_half"] = ()
test_equivariance.test_all_rules_are_in_the_table()
"""


@pytest.mark.docs
def test_a_file_and_a_line_add_a_built_in_rule(tmp_path):
    source = tmp_path / "src" / "fedsim"
    shutil.copytree(Path(fedsim.__file__).parent, source)
    rule = next(block.text for block in blocks("docs/tutorials/own-rule.md") if block.file == "best_half.py")
    lines = [line for line in rule.splitlines(keepends=True) if not line.startswith("from fedsim")]
    (source / "aggregators" / "best_half.py").write_text(MODULES + "".join(lines))
    line = next(block.text for block in blocks("docs/extending.md", "text") if block.text.startswith("from fedsim"))
    with (source / "aggregators" / "built_in_rules.py").open("a") as file:
        file.write(line)
    (tmp_path / "unknown.toml").write_text('server.aggregator = "qqqq"')
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "src"), str(ROOT)])}
    command = [sys.executable, "-c", PROGRAM.format(folder=str(tmp_path))]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert "[best_half]" in process.stdout
    assert ", best_half or a plug-in" in process.stderr
