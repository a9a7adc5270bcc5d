"""One run on several processes of this machine: its rows compared with those of one process, and seconds a round of W1.

Prints a line of JSON for each number of processes, devices and axis: whether the rows of a small sweep (axis "runs")
and of a single run (axis "clients") equal those of one process with as many devices, bit for bit. Then a line for each
number of processes with W1's cohort shared by all devices: the median of all passes and calls, which take turns, and
the seconds and bytes of the exchange that such a round needs alone, the gathering of the cohort's updates.

python benchmarks/processes.py --out benchmarks/results/processes-cpu.jsonl
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import measure
import numpy as np
import workloads
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import fedsim
from fedsim.core.types import PyTree
from fedsim.engine import processes, transfer
from fedsim.engine.layout import CLIENTS, RUNS, Layout
from fedsim.engine.programs import RunFunctions, make_mesh
from fedsim.runs.folder import RunFolder
from fedsim.runs.schemas import SCHEMAS

SHAPES = [(1, 2), (2, 1), (1, 4), (2, 2), (4, 1)]  # processes, devices of each
SMALL = {
    "data": {"num_clients": 12, "partition": "dirichlet"},
    "mlp": {"hidden_sizes": [16]},
    "server": {"aggregator": "arfl", "cohort_size": 8, "num_rounds": 20, "eval_every": 5},
    "corruption": {"kind": "shuffling", "fraction": 0.3},
}
SEEDS = {"runs": list(range(8)), "clients": [0]}  # of each axis
MICRO_BATCH = 8  # as `fedsim run` chooses for this model on CPUs


def main() -> None:
    """Parses the arguments; starts the processes, or is one of them."""
    parser = measure.parser(__doc__, repeats=3)
    parser.add_argument("--passes", type=measure.positive, default=3, help="over all numbers of processes (default 3)")
    parser.add_argument("--rounds", type=measure.positive, default=2, help="of a timed call (default 2)")
    parser.add_argument("--devices", type=measure.positive, default=4, help="in all, for W1 (default 4)")
    parser.add_argument("--part", nargs=5, help=argparse.SUPPRESS)  # ADDRESS PROCESSES ID TASK FOLDER
    options = parser.parse_args()
    if options.part:
        run_part(options)
        return
    with tempfile.TemporaryDirectory() as directory:
        compare_rows(Path(directory), options)
    compare_rounds(options)


def compare_rows(directory: Path, options: argparse.Namespace) -> None:
    """Prints a line for each shape and axis."""
    for axis in SEEDS:
        folders = {}
        for shape in SHAPES:
            path = directory / f"{axis}-{shape[0]}x{shape[1]}"
            start_parts(*shape, axis, path, options)
            folders[shape] = RunFolder(path)
        for (count, devices), folder in folders.items():
            expected = folders[1, count * devices]
            equal = {kind: folder.read(kind).equals(expected.read(kind)) for kind in SCHEMAS}
            rows = {kind: folder.read(kind).height for kind in SCHEMAS}
            shape = {"processes": count, "devices": devices, "axis": axis}
            measure.line(options.out, benchmark="processes-rows", **shape, rows=rows, equal=equal)


def compare_rounds(options: argparse.Namespace) -> None:
    """Prints a line for each number of processes."""
    shapes = [shape for shape in ((1, options.devices), (2, options.devices // 2), (options.devices, 1)) if all(shape)]
    parts: dict[tuple[int, int], list[dict[str, Any]]] = {shape: [] for shape in shapes}
    for _ in range(options.passes):
        for shape in shapes:
            parts[shape].append(start_parts(*shape, "W1", Path(), options))
    for (count, devices), passes in parts.items():
        rounds, gathers = ([s for one in passes for s in one[key]] for key in ("rounds", "gathers"))
        measure.line(
            options.out,
            benchmark="processes-round",
            workload="W1",
            processes=count,
            devices=devices,
            round_seconds=statistics.median(rounds),
            min_round_seconds=min(rounds),
            gather_seconds=statistics.median(gathers),
            gathered_bytes=passes[0]["bytes"],
            timed=len(rounds),
        )


def start_parts(count: int, devices: int, task: str, folder: Path, options: argparse.Namespace) -> Any:
    """Runs `task` on `count` processes with `devices` each; what process 0 prints last, as JSON."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        address = f"localhost:{listener.getsockname()[1]}"
    limits = ["--repeats", str(options.repeats), "--rounds", str(options.rounds)]
    command = [sys.executable, __file__, *limits, "--part", address, str(count)]
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)}
    started = [
        subprocess.Popen([*command, str(i), task, str(folder)], env=environment, stdout=subprocess.PIPE, text=True)
        for i in range(count)
    ]
    printed = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"a process of {count} ended early")
    return json.loads(printed[0].splitlines()[-1])


def run_part(options: argparse.Namespace) -> None:
    """One of the processes."""
    address, count, process, task, folder = options.part
    if int(count) > 1:
        jax.distributed.initialize(address, int(count), int(process))
    if task == "W1":
        print(json.dumps(time_rounds(options)))
    else:
        experiment = fedsim.load(SMALL, seed=fedsim.sweep(SEEDS[task]))
        print(fedsim.run(experiment, out=folder, progress=False).rounds.height)


def time_rounds(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each call, a round, with the cohort of W1 shared by all devices; and of the gathering alone."""
    workload = workloads.load("W1")
    layout = Layout(client_devices=jax.device_count(), micro_batch=MICRO_BATCH)
    mesh = make_mesh(layout)
    assert mesh is not None
    simulation = workload.simulation(layout.client_width, layout.micro_batch, axis=layout.client_axis)
    functions = RunFunctions(simulation, options.rounds, mesh=mesh)
    shared = transfer.put(workload.shared(), NamedSharding(mesh, P()))
    inputs = workloads.run_inputs(jax.random.split(jax.random.key(0), 1), np.full(1, workload.learning_rate))
    inputs = transfer.put(inputs, NamedSharding(mesh, P(RUNS)))
    number = transfer.put(np.int32(options.rounds), NamedSharding(mesh, P()))
    init = jax.jit(functions.init).lower(shared, inputs).compile()
    states = init(shared, inputs)
    chunk = jax.jit(functions.chunk).lower(states, shared, inputs, number).compile()
    processes.wait_for_all()  # Gloo waits 30 s for a process that still compiles, and then gives up
    calls = [seconds_of(chunk, states, shared, inputs, number) for _ in range(1 + options.repeats)]

    num_params = sum(leaf[0].size for leaf in jax.tree.leaves(states.variables.params))
    updates = np.zeros((workload.cohort_size, num_params), np.float32)
    on_devices = transfer.put(updates, NamedSharding(mesh, P(CLIENTS)))
    gather = jax.jit(jnp.copy, out_shardings=NamedSharding(mesh, P())).lower(on_devices).compile()
    gathers = [seconds_of(gather, on_devices) for _ in range(1 + 3 * options.repeats)]
    return {
        "rounds": [seconds / options.rounds for seconds in calls[1:]],
        "gathers": gathers[1:],
        "bytes": updates.nbytes,
    }


def seconds_of(program: Callable[..., PyTree], *arguments: PyTree) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    jax.block_until_ready(program(*arguments))
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
