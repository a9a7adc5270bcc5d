"""The benchmarks have help, and tiny measurements have the keys that all lines share."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytestmark = pytest.mark.slow  # in processes of its own
FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = [path for path in sorted(FOLDER.glob("*.py")) if "__main__" in path.read_text()]
SCRIPTS.append(FOLDER / "peers" / "compare.py")
HELP = """\
import runpy, sys
for script in sys.argv[1:]:
    print(f"--- {script}")
    sys.argv[1:], sys.path[0] = ["--help"], script.rpartition("/")[0]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        assert not end.code, script
"""
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


def run(script, *arguments, returncode=0, env=None):
    command = [sys.executable, FOLDER / f"{script}.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == returncode, done.stdout + done.stderr
    return done


@pytest.fixture
def peers(monkeypatch):
    """Imports `compare`, `exchange` and `workloads`; afterwards removes all modules of the benchmarks."""
    before = set(sys.modules)
    for folder in (FOLDER, FOLDER / "peers"):
        monkeypatch.syspath_prepend(folder)
    yield [importlib.import_module(name) for name in ("compare", "exchange", "workloads")]
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_help():
    command = [sys.executable, "-c", HELP, *SCRIPTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = done.stdout.split("--- ")[1:]
    assert len(pages) == len(SCRIPTS) > 4
    for page in pages:
        assert "usage" in page
        assert len(page.splitlines()) > 10


def test_round(tmp_path):
    out = tmp_path / "lines.jsonl"
    options = "--workloads W3 --widths 2 K --micro-batches 0 --devices one --rounds 2 --repeats 1"
    run("round", *options.split(), "--out", str(out))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["width"] for line in lines] == [2, 20]
    for line in lines:
        assert line.keys() >= KEYS
        assert line["samples_per_second"] == pytest.approx(1000 / line["median_seconds_a_round"], rel=1e-2)
        assert 0 < line["share_of_peak"] < 1


def test_rules(tmp_path):
    out = tmp_path / "lines.jsonl"
    options = "--rules median nnm --clients 7 --sizes 50 --repeats 1 --peers"
    run("rules", *options.split(), "--out", str(out))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["rule"], line["clients"], line["size"], line["num_byzantine"]) for line in lines] == [
        ("median", 7, 50, 1),
        ("nnm", 7, 50, 1),
    ]
    for line in lines:
        assert line.keys() >= {"command", "versions", "threads", "compile_seconds", "median_seconds_a_call", "peers"}


def test_the_parts_of_planning_are_timed(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text("data = {num_train = 60, num_test = 30}\nserver = {cohort_size = 2, num_rounds = 1}\n")
    done = run("sweep", "--plan", str(path))
    assert [*json.loads(done.stdout)["seconds"]] == ["runs", "plan", "families", "folder", "inputs"]


def test_data_set_that_is_not_prepared(tmp_path):
    environment = os.environ | {"FEDSIM_DATA_DIR": str(tmp_path), "FEDSIM_CACHE_DIR": str(tmp_path)}
    done = run("peers/compare", "--workloads", "W5", "--envs", tmp_path, returncode=2, env=environment)
    assert done.stderr.startswith("W5: shakespeare is not prepared in ")
    assert done.stderr.endswith("; run `fedsim data prepare shakespeare`\n")
    assert not any(tmp_path.iterdir())  # no environment of a peer either


def test_exported_work_is_sufficient(peers, tmp_path):
    """A plain loop over the exported files alone computes the same round as fedsim."""
    compare, exchange, workloads = peers
    compare.export(workloads.load("W3"), tmp_path, rounds=2)
    compare.run([sys.executable, FOLDER / "peers" / "fedsim_round.py", tmp_path, "--check"])
    work = exchange.load(tmp_path, fedsim_order=True)
    batch_size, learning_rate = work.settings["batch_size"], work.settings["learning_rate"]

    @jax.grad
    def gradient(params, x, y):
        hidden = jax.nn.relu(x @ params["Dense_0/kernel"] + params["Dense_0/bias"][None])
        logits = hidden @ params["Dense_1/kernel"] + params["Dense_1/bias"][None]
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(y)), y])

    gradient, sums = jax.jit(gradient), dict.fromkeys(work.params, 0.0)
    for client in work.cohort(0):
        params, examples = work.params, work.examples(client)
        for start in range(examples.start, examples.stop, batch_size):
            batch = slice(start, min(start + batch_size, examples.stop))
            gradients = gradient(params, work.x[batch], work.y[batch])
            params = {path: params[path] - learning_rate * gradients[path] for path in params}
        sums = {path: sums[path] + work.num_examples[client] * np.asarray(params[path]) for path in params}
    total = sum(work.num_examples[client] for client in work.cohort(0))
    after = {path: value / total for path, value in sums.items()}
    np.save(exchange.params_file(tmp_path, "loop"), exchange.flatten(after, work.settings["leaves"]))
    assert compare.distance(work, "loop") < 1e-5


CHECK, SWEEP = "check round arfl", "sweep W3, 4 runs in lockstep"


def test_the_accelerator_benchmark_measures_and_resumes(tmp_path):
    out = tmp_path / "report.json"
    run("accelerator", "--tiny", "--out", str(out), "--only", CHECK)
    done = run("accelerator", "--tiny", "--out", str(out), "--only", CHECK, SWEEP)
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


def test_it_needs_an_accelerator(tmp_path):
    environment = {"JAX_PLATFORMS": "cpu", "PATH": ""}
    done = run("accelerator", "--out", tmp_path / "report.json", returncode=2, env=environment)
    assert "--tiny" in done.stderr


def test_results_of_another_device_are_kept(tmp_path):
    out = tmp_path / "report.json"
    out.write_text(json.dumps({"device": "NVIDIA H100", "results": {}}))
    done = run("accelerator", "--tiny", "--out", str(out), "--only", CHECK, returncode=1)
    assert "device" in done.stderr
    assert json.loads(out.read_text())["device"] == "NVIDIA H100"
