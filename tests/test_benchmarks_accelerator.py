"""The accelerator benchmark runs without an accelerator, resumes, and reports errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # in processes of its own
SCRIPT = Path(__file__).parents[1] / "benchmarks" / "accelerator.py"
CHECK, SWEEP = "check round arfl", "sweep W3, 4 runs in lockstep"


def run_tiny(out, *arguments):
    command = [sys.executable, SCRIPT, "--tiny", "--out", out, *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def test_measures_and_resumes(tmp_path):
    out = tmp_path / "report.json"
    done = run_tiny(out, "--only", CHECK)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run_tiny(out, "--only", CHECK, SWEEP)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{CHECK}: measured before" in done.stdout

    report = json.loads(out.read_text())
    assert report.keys() >= {"device", "platform", "versions", "command", "results"}
    assert list(report["results"]) == [CHECK, SWEEP]
    check, sweep = report["results"].values()
    assert check["passed"]
    assert [line["same_cohort"] for line in check["rounds"]] == [True, True]
    assert sweep["runs_in_lockstep"] == 4
    assert sweep["compile_seconds"] > 0
    assert sweep["median_seconds_a_round"] > 0
    assert sweep["program_bytes"] > 0
    assert sweep["forecast_bytes"] > 0


def test_needs_an_accelerator(tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPT, "--out", tmp_path / "report.json"],
        capture_output=True,
        text=True,
        check=False,
        env={"JAX_PLATFORMS": "cpu", "PATH": ""},
    )
    assert done.returncode == 2
    assert "--tiny" in done.stderr


def test_results_of_another_device_are_kept(tmp_path):
    out = tmp_path / "report.json"
    out.write_text(json.dumps({"device": "NVIDIA H100", "results": {}}))
    done = run_tiny(out, "--only", CHECK)
    assert done.returncode == 1
    assert "device" in done.stderr
    assert json.loads(out.read_text())["device"] == "NVIDIA H100"
