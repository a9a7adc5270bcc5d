"""Three ways to train S runs that differ in seed and learning rate, with and without startup and compiling.

- `together`: one process and one program, as `fedsim run` compiles a sweep.
- `in_turn`: one process; a run is compiled once and called S times.
- `processes`: a process for each run, one at a time on each CPU; compiled programs are not kept.

Total seconds are from the start of the first process to the end of the last, with imports, data and compiling. Steady
seconds are the time in compiled code; for `processes`, their sum over the number of processes at a time. Prints one
JSON line for each workload, S and way. `total_ratio` and `steady_ratio` are relative to `together`.

`--plan CONFIG ...` measures instead what `fedsim run CONFIG` does before its first round, in seconds by part: `runs`
resolves the runs; `plan` loads the data, checks and groups the runs and chooses layouts; `families` finds the groups
that share a program; `folder` opens a new run folder; `inputs` makes keys and corrupted data of all groups.

Workloads: `W3` of `workloads.py` with 200 rounds a run, and `cnn`, the CIFAR-10 CNN on 20 clients x 50 images, K 5,
B 10, with 10 rounds. The layout (lockstep, devices) is what fedsim chooses for S runs and, in the other ways, for one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import measure
import workloads
from workloads import Workload

import fedsim
from fedsim.engine import devices, make_plan
from fedsim.engine.store import open_folder
from fedsim.engine.streamed.inputs import make_inputs
from fedsim.models import Cifar10CNN
from fedsim.runs.folder import RunFolder

Value = TypeVar("Value")

WAYS = ("together", "in_turn", "processes")
MAX_REPEATED = 4  # more processes than this are measured once


class Settings(NamedTuple):
    """How a workload's runs are trained."""

    load: Callable[[], Workload]
    num_rounds: int


class Seconds(NamedTuple):
    """The time that one way took."""

    total_seconds: float
    compile_seconds: float
    steady_seconds: float
    layout: dict[str, int]  # of each process


SETTINGS = {
    "W3": Settings(lambda: workloads.load("W3"), 200),
    "cnn": Settings(lambda: Workload("cnn", workloads.images(20, 50), Cifar10CNN(10), 5, 10, 0.01), 10),
}


def main() -> None:
    """Parses the arguments and measures each workload; or, with `--alone`, trains the runs of one process."""
    parser = measure.parser(__doc__, repeats=3)
    parser.add_argument("--workloads", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), help="default: both")
    parser.add_argument(
        "--runs", type=measure.at_least(1), nargs="+", default=[1, 4, 16, 64], help="S (default 1 4 16 64)"
    )
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="default: all")
    parser.add_argument("--rounds", type=measure.at_least(1), help="rounds a run (default: the workload's)")
    parser.add_argument(
        "--at-a-time",
        type=measure.at_least(1),
        default=len(measure.cpus()) or 1,
        help="processes, on equal shares of the CPUs (default: CPUs)",
    )
    parser.add_argument(
        "--max-seconds",
        type=measure.at_least(0),
        default=360,
        help="skip S processes if fewer of them show that they would take longer (default %(default)s)",
    )
    parser.add_argument(
        "--alone",
        choices=["together", "in_turn"],
        help="train S runs of one workload in this process, and print the seconds compiling and running",
    )
    parser.add_argument("--plan", nargs="+", type=Path, metavar="CONFIG", help="measure planning of configurations")
    parser.add_argument("--first-run", type=measure.at_least(0), default=0, help="with --alone: number of the first")
    options = parser.parse_args()
    if options.alone and (len(options.workloads) != 1 or len(options.runs) != 1):
        parser.error("--alone: must have one of --workloads and one of --runs")
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # processes share an accelerator
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    for path in options.plan or ():
        measure.line(options.out, benchmark="plan", **time_plan(path))
    for name in [] if options.plan else options.workloads:
        if options.alone:
            alone(SETTINGS[name], options)
        else:
            measure_workload(name, options)


def time_plan(path: Path) -> dict[str, Any]:
    """Seconds of the parts of `fedsim run` before its first round, without compiling."""
    devices.use_one_per_core()
    seconds, experiment = {}, fedsim.load(path)

    def timed(part: str, function: Callable[[], Value]) -> Value:
        started = time.perf_counter()
        result = jax.block_until_ready(function())
        seconds[part] = time.perf_counter() - started
        return result

    plan = make_plan(experiment)  # imports what it needs, and loads the data
    timed("runs", experiment.runs)
    plan = timed("plan", lambda: make_plan(experiment))
    families = timed("families", lambda: plan.families)
    with tempfile.TemporaryDirectory() as folder:
        timed("folder", lambda: open_folder(RunFolder(Path(folder)), plan))
    inputs = [make_inputs(group, family) for group, family in zip(plan.groups, families, strict=True)]

    def place() -> list[jax.Array]:
        for group_inputs in inputs:
            group_inputs.place()
        return [group_inputs.batches[-1].key for group_inputs in inputs]

    timed("inputs", place)
    numbers = {"runs": len(plan.runs), "groups": len(plan.groups), "programs": len(set(families))}
    return {"config": path.name, **numbers, "seconds": seconds}


def measure_workload(name: str, options: argparse.Namespace) -> None:
    """Prints a line for each number of runs and way."""
    seconds_a_process = 0.0
    for num_runs in options.runs:
        seconds: dict[str, list[Seconds]] = {way: [] for way in options.ways}
        for repeat in range(options.repeats):
            for way in options.ways:
                if way != "processes":
                    seconds[way].append(in_one_process(name, way, num_runs, options))
                elif (repeat == 0 or num_runs <= MAX_REPEATED) and seconds_a_process * num_runs <= options.max_seconds:
                    seconds[way].append(in_processes(name, num_runs, options))
                    seconds_a_process = seconds[way][-1].total_seconds / num_runs
        medians = {way: _median(calls) if calls else None for way, calls in seconds.items()}
        for way in options.ways:
            _print(name, num_runs, way, medians, len(seconds[way]), options)


def _median(calls: list[Seconds]) -> Seconds:
    *seconds, layouts = zip(*calls, strict=True)
    return Seconds(*map(statistics.median, seconds), layout=layouts[0])


def _print(
    name: str, num_runs: int, way: str, medians: dict[str, Seconds | None], num_calls: int, options: argparse.Namespace
) -> None:
    settings, median, together = SETTINGS[name], medians[way], medians.get("together")
    result: dict[str, Any] = {"not_measured": f"would have taken more than {options.max_seconds} s"}
    if median is not None:
        result = {"calls": num_calls, **median._asdict()}
        if together is not None:
            result["total_ratio"] = median.total_seconds / together.total_seconds
            result["steady_ratio"] = median.steady_seconds / together.steady_seconds
    if way == "processes":
        result["processes_at_a_time"] = min(options.at_a_time, num_runs)
    measure.line(
        options.out,
        benchmark="sweep",
        workload=name,
        runs=num_runs,
        rounds=options.rounds or settings.num_rounds,
        way=way,
        **result,
    )


def in_one_process(name: str, way: str, num_runs: int, options: argparse.Namespace) -> Seconds:
    """All runs in one process."""
    started = time.perf_counter()
    compiling, running, layout = _result(_start(name, way, num_runs, 0, options))
    return Seconds(time.perf_counter() - started, compiling, running, layout)


def in_processes(name: str, num_runs: int, options: argparse.Namespace) -> Seconds:
    """Each run in a separate process, `options.at_a_time` at a time; `compiling` is the median of the processes."""
    started = time.perf_counter()
    places, cpus = range(min(options.at_a_time, num_runs)), measure.cpus()
    waiting = iter(range(num_runs))
    active = {place: _start(name, "in_turn", 1, next(waiting), options, cpus[place :: len(places)]) for place in places}
    results = []
    while active:
        for place, process in list(active.items()):
            if process.poll() is None:
                continue
            results.append(_result(active.pop(place)))
            if (run := next(waiting, None)) is not None:
                active[place] = _start(name, "in_turn", 1, run, options, cpus[place :: len(places)])
        time.sleep(0.005)
    total = time.perf_counter() - started
    compiling, running, layouts = zip(*results, strict=True)
    return Seconds(total, statistics.median(compiling), sum(running) / len(places), layouts[0])


def _start(
    name: str, way: str, num_runs: int, first_run: int, options: argparse.Namespace, cpus: Sequence[int] = ()
) -> subprocess.Popen[str]:
    """A process of `--alone`, on `cpus` if any are given."""
    rounds = options.rounds or SETTINGS[name].num_rounds
    words = {"workloads": name, "runs": num_runs, "alone": way, "first-run": first_run, "rounds": rounds}
    arguments = [word for option, value in words.items() for word in (f"--{option}", str(value))]
    process = subprocess.Popen([sys.executable, Path(__file__), *arguments], stdout=subprocess.PIPE, text=True)
    if cpus:
        os.sched_setaffinity(process.pid, cpus)
    return process


def _result(process: subprocess.Popen[str]) -> tuple[float, float, dict[str, int]]:
    """Waits for a process of `--alone`; its seconds compiling and running, and its layout."""
    text, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a process ended with status {process.returncode}")
    result = json.loads(text)
    return result["compile_seconds"], result["steady_seconds"], result["layout"]


def alone(settings: Settings, options: argparse.Namespace) -> None:
    """Trains the runs of this process and prints the seconds."""
    devices.use_one_per_core()
    workload, (num_runs,), together = settings.load(), options.runs, options.alone == "together"
    num_rounds = options.rounds or settings.num_rounds
    layout = workload.layout(num_runs if together else 1)
    seeds = range(options.first_run, options.first_run + num_runs)
    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    rates = jnp.asarray([workload.learning_rate * (1 + seed % 4) / 4 for seed in seeds], jnp.float32)
    program, run = measure.compile_sweep(workload, layout, workloads.run_inputs(keys, rates), num_rounds)
    result = {"compile_seconds": program.trace_seconds + program.compile_seconds, "steady_seconds": run()}
    print(json.dumps(result | {"layout": asdict(layout)}))


if __name__ == "__main__":
    main()
