"""The benchmarks start, say what they do, and measure: a tiny measurement, with the keys that every line has."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = ["hotspots", "population", "ragged", "resume", "round", "sweep", "peers/compare"]
KEYS = {
    "command",
    "versions",
    "device",
    "compile_seconds",
    "median_seconds_a_round",
    "minimum_seconds_a_round",
    "samples_per_second",
    "flops_per_second",
    "share_of_peak",
    "program_bytes",
}


def run(script, *arguments):
    command = [sys.executable, FOLDER / f"{script}.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script):
    done = run(script, "--help")
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout
    assert len(done.stdout.splitlines()) > 10


def test_a_round_is_measured(tmp_path):
    out = tmp_path / "lines.jsonl"
    options = "--workloads W3 --widths 2 K --micro-batches 0 --devices one --rounds 2 --repeats 1"
    done = run("round", *options.split(), "--out", str(out))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["width"] for line in lines] == [2, 20]
    for line in lines:
        assert line.keys() >= KEYS
        assert line["samples_per_second"] == pytest.approx(1000 / line["median_seconds_a_round"], rel=1e-2)
        assert 0 < line["share_of_peak"] < 1


def test_a_wrong_argument_is_named():
    done = run("round", "--widths", "-1")
    assert done.returncode == 2
    assert "'-1' is not a whole number of at least 1" in done.stderr
