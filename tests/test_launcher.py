"""The distribution's name: messages and pyproject.toml agree, and PyPI's other `fedsim` is refused with one line."""

import os
import re
import subprocess
import sys
import tomllib

import pytest

import fedsim
import fedsim_launcher
from fedsim.errors import FedsimError, pip_install
from tests.docs.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def install(folder, *files):
    """A distribution `fedsim` with these files, whose package cannot be imported."""
    information = folder / "fedsim-0.9.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: fedsim\nVersion: 0.9.0\n")
    (information / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    (folder / "fedsim").mkdir()
    (folder / "fedsim" / "__init__.py").write_text("1 / 0")


def test_messages_name_this_distribution_and_its_extras():
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    extras = {extra for text in texts for extra in re.findall(r"pip_install\(['\"]([\w-]+)['\"]\)", text)}
    assert {"cuda", "data", "html", "wandb"} <= extras <= set(PROJECT["optional-dependencies"])
    assert pip_install("data") == f"pip install '{PROJECT['name']}[data]'"
    assert not any("fedsim[" in text for text in (*texts, (ROOT / "pyproject.toml").read_text(encoding="utf-8")))


def test_another_distribution_is_refused(tmp_path, monkeypatch):
    """Also where its package hides this one."""
    install(tmp_path, "fedsim/__init__.py", "fedsim_cli/__init__.py")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        FedsimError, match=r"the distribution fedsim 0\.9\.0 .*; pip uninstall fedsim, then pip install"
    ):
        fedsim.run({})
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    program = [sys.executable, "-c", "import fedsim_launcher; fedsim_launcher.entry()", "--version"]
    done = subprocess.run(program, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"fedsim: error: {fedsim_launcher.find_conflict()}\n"


def test_an_editable_install_of_an_earlier_version_is_no_conflict(tmp_path, monkeypatch):
    install(tmp_path, "_editable_impl_fedsim.pth", "fedsim/configs/quickstart.toml")
    monkeypatch.syspath_prepend(tmp_path)
    assert not fedsim_launcher.find_conflict()
