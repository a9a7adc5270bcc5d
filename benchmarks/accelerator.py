"""Checks and measures fedsim on a GPU or TPU, and writes one JSON file.

    python benchmarks/accelerator.py

- check: rounds of several rules and gradients of several networks, against the CPU, up to float32 rounding
- rounds: seconds of a round of W1 to W3, by precision, form of convolutions and clients in lockstep
- sweep: many runs in lockstep against one after another; memory that was forecast against memory in use
- family: one program for 4 rules x 4 attacks compared with a program for each pair, compiling and running
- torch: W1 to W3 in PyTorch on the same device, side by side with fedsim

Each measurement runs in a process of its own, so that the device's peak memory is its own and a crash ends nothing
else. The file is rewritten after each one: after Ctrl-C, or once `--minutes` are over, the same command resumes.
Measurements that failed run again with `--retry`. Of fedsim's dependencies, platformdirs, orbax, scipy and matplotlib
may be missing; without PyTorch, leave its measurements out by `--only`. `--tiny` tries all on small workloads, but for
PyTorch's, also on a CPU.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src"
CHECKED_RULES = ("fedavg", "arfl", "multi_krum", "rfa", "cfl", "trimmed_mean")
CHECKED_NETWORKS = ("Cifar10CNN", "FemnistCNN", "CharLSTM")
ROUNDS = [  # workload, convolutions, precision, clients in lockstep (0: all)
    ("W1", "products", "float32", 0),
    ("W1", "convolutions", "float32", 0),
    ("W1", "products", "bfloat16", 0),
    ("W1", "convolutions", "bfloat16", 0),
    ("W1", "products", "float32", 5),
    ("W1", "products", "float32", 1),
    ("W2", "products", "float32", 0),
    ("W2", "convolutions", "float32", 0),
    ("W2", "products", "bfloat16", 0),
    ("W3", "products", "float32", 0),
    ("W3", "products", "float32", 4),
]
SWEEPS = [("W3", 64, 50), ("W3", 512, 50), ("W1", 4, 2)]  # workload, runs, rounds
TINY_SWEEPS = [("W3", 4, 2)]
FAMILIES = ("W3", "W1")
TORCH = ("W1", "W2", "W3")
IDENTITY = ("device", "platform", "num_devices", "versions", "tiny")  # equal in all results of a file


def main() -> int:
    """Parses the arguments and measures; 1 if a check or a measurement failed, 130 after Ctrl-C."""
    options = _parse()
    if options.measurement:
        return _measure_here(options)
    measurements = [name for name in _measurements(options) if any(text in name for text in options.only)]
    if not measurements:
        print(f"accelerator.py: --only: no measurement has {' or '.join(options.only)} in its name", file=sys.stderr)
        return 2
    deadline = time.monotonic() + 60 * options.minutes
    environment = _run("environment", options, 120)
    if "error" in environment:
        print(f"accelerator.py: {environment['error']}", file=sys.stderr)
        return 1
    if environment["platform"] == "cpu" and not options.tiny:
        print("accelerator.py: JAX finds no accelerator; --tiny runs on a CPU", file=sys.stderr)
        return 2
    command = shlex.join(["python", "benchmarks/accelerator.py", *sys.argv[1:]])
    report = _load(options.out, environment | {"tiny": options.tiny, "command": command})
    results = report["results"]
    try:
        for name in measurements:
            seconds_left = deadline - time.monotonic()
            if name in results and not (options.retry and has_failed(results[name])):
                print(f"{name}: measured before", flush=True)
                continue
            if seconds_left < 10:
                print(f"{name}: no time is left", flush=True)
                continue
            results[name] = _run(name, options, min(options.limit, seconds_left))
            _save(options.out, report)
            print(f"{name}: {json.dumps(results[name])[:300]}", flush=True)
    except KeyboardInterrupt:
        return 130
    failed = [name for name, result in results.items() if has_failed(result)]
    print(f"{sum(name in results for name in measurements)} of {len(measurements)} measurements in {options.out}")
    for name in failed:
        print(f"failed: {name}")
    return 1 if failed else 0


def has_failed(result: dict[str, Any]) -> bool:
    """Whether a measurement ended in an error, or a check did not pass."""
    return "error" in result or not result.get("passed", True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parent / "results" / "accelerator.json"
    parser.add_argument("--out", type=Path, default=default, help="default benchmarks/results/accelerator.json")
    parser.add_argument("--minutes", type=float, default=25, help="time for everything (default %(default)s)")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one measurement (default %(default)s)")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="names that contain one of these")
    parser.add_argument("--retry", action="store_true", help="run failed measurements again")
    parser.add_argument("--torch-python", default=sys.executable, metavar="FILE", help="the Python that has PyTorch")
    parser.add_argument("--tiny", action="store_true", help="small workloads, also on a CPU")
    parser.add_argument("--measurement", help=argparse.SUPPRESS)  # in a child process
    return parser.parse_args()


def _measurements(options: argparse.Namespace) -> dict[str, tuple[Any, ...]]:
    """All measurements by name, the most important first: module in accelerator_parts, function, arguments."""
    calls: dict[str, tuple[Any, ...]] = {}
    calls |= {f"check gradient {name}": ("correctness", "compare_gradient", name) for name in CHECKED_NETWORKS}
    calls |= {f"check round {name}": ("correctness", "compare_round", name) for name in CHECKED_RULES}
    for name, layers, precision, width in ROUNDS:
        title = f"rounds {name} {layers} {precision}, {width or 'all'} clients"
        calls[title] = ("timing", "time_rounds", name, layers, precision, width)
    for name, num_runs, num_rounds in TINY_SWEEPS if options.tiny else SWEEPS:
        for in_lockstep in (True, False):
            title = f"sweep {name}, {num_runs} runs {'in lockstep' if in_lockstep else 'one after another'}"
            calls[title] = ("timing", "time_sweep", name, num_runs, num_rounds, in_lockstep)
    calls |= {f"family {name}": ("timing", "time_family", name) for name in FAMILIES}
    return calls | {f"torch {name}": ("torch_peer", "time_peers", name, options.torch_python) for name in TORCH}


def _measure_here(options: argparse.Namespace) -> int:
    """Runs one measurement in this process, and prints its result as the last line."""
    if find_spec("fedsim") is None:
        sys.path.insert(1, str(SOURCE))
    import measure

    if options.measurement == "environment":
        result = measure.environment()
    else:
        module, function, *arguments = _measurements(options)[options.measurement]
        result = getattr(import_module(f"accelerator_parts.{module}"), function)(*arguments, options.tiny)
    print(json.dumps(measure.short(result)), flush=True)
    return 0


def _run(name: str, options: argparse.Namespace, limit: float) -> dict[str, Any]:
    """The result of a measurement in a process of its own, or {"error": the last line of its stderr}."""
    arguments = ["--measurement", name, "--torch-python", options.torch_python, *(["--tiny"] if options.tiny else [])]
    environment = dict(os.environ)
    if (platforms := environment.get("JAX_PLATFORMS")) and "cpu" not in platforms:
        environment["JAX_PLATFORMS"] = f"{platforms},cpu"  # checks compare with it
    if options.tiny:
        environment.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # compiling takes most of the time
    if name.startswith("torch"):
        environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several processes share the device
    command = [sys.executable, __file__, *arguments]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {limit:.0f} s"}
    lines = process.stdout.splitlines()
    if process.returncode or not lines:
        return {"error": (process.stderr.strip().splitlines() or [f"exit status {process.returncode}"])[-1][:300]}
    return json.loads(lines[-1])


def _load(path: Path, environment: dict[str, Any]) -> dict[str, Any]:
    """The report in the file, or an empty one. Exits if it is of another device or other versions."""
    if not path.is_file():
        return environment | {"results": {}}
    report = json.loads(path.read_text())
    if different := [key for key in IDENTITY if report.get(key) != environment[key]]:
        raise SystemExit(f"accelerator.py: {path} differs in {', '.join(different)}; give another --out")
    return report


def _save(path: Path, report: dict[str, Any]) -> None:
    """Replaces the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_path = path.with_suffix(".partial")
    partial_path.write_text(json.dumps(report, indent=1) + "\n")
    partial_path.replace(path)


if __name__ == "__main__":
    sys.exit(main())
