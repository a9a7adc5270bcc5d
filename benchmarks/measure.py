"""Tools of the benchmarks: compile times and steady times, memory, FLOP/s, and one line of JSON for each measurement.

FLOPs count matrix products and convolutions on real examples; padding and idle clients count as zero. The share of peak
is relative to a large float32 matrix product at JAX's default precision (on some accelerators less than float32 for
both), interleaved with the timed calls.
"""

import argparse
import json
import math
import os
import platform
import resource
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import flops
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from workloads import Workload, hparams

import fedsim
from fedsim.core.client import loss_gradient
from fedsim.core.types import ClientData, PyTree, RoundRecord
from fedsim.engine.devices import compiler_options
from fedsim.engine.inputs import RunInputs, SharedInputs, cut_batches
from fedsim.engine.layout import CLIENTS, RUNS, Layout
from fedsim.engine.programs import RunFunctions

VERSIONED = ("jax", "jaxlib", "flax")
MAX_ROUNDS, MIN_SECONDS = 1000, 0.5  # of a call whose number of rounds is chosen by time
PRODUCT_SIZES = {"cpu": 2048}  # of the product that stands for the device's peak; other platforms:
LARGE_PRODUCT = 8192


def parser(description: str | None, repeats: int) -> argparse.ArgumentParser:
    """A parser with the options of every benchmark: `--repeats` and `--out`."""
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument(
        "--repeats", type=at_least(1), default=repeats, help="timed calls of each (default %(default)s)"
    )
    result.add_argument("--out", type=_file, help="file to which the printed lines are appended")
    return result


def at_least(minimum: int) -> Callable[[str], int]:
    """The type of an option that is an integer of at least `minimum`."""

    def integer(text: str) -> int:
        if not text.removeprefix("-").isdecimal() or int(text) < minimum:
            raise argparse.ArgumentTypeError(f"must be an integer of at least {minimum}, got {text!r}")
        return int(text)

    return integer


def _file(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"must be a file in an existing folder, got {text!r}")
    return path


@dataclass(frozen=True)
class Program:
    """A compiled function, with the seconds of tracing and compiling it."""

    call: Callable[..., Any]
    trace_seconds: float
    compile_seconds: float
    program_bytes: int
    """Arguments, results (a donated argument and its result count once) and temporaries."""


def compile_program(fn: Callable[..., Any], *args: Any, donate: int | None = None) -> Program:
    """Compiles `fn` for `args` (arrays or their shapes); each call donates argument number `donate`."""
    started = time.perf_counter()
    lowered = jax.jit(fn, donate_argnums=() if donate is None else donate).lower(*args)
    traced = time.perf_counter()
    compiled = lowered.compile(compiler_options(jax.devices()[0]))
    ended = time.perf_counter()
    memory: Any = compiled.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return Program(compiled, traced - started, ended - traced, held + memory.temp_size_in_bytes)


def compile_rounds(
    simulation: fedsim.Simulation, data: ClientData, learning_rate: float, max_rounds: int = MAX_ROUNDS
) -> tuple[Program, Callable[[int], tuple[float, RoundRecord]]]:
    """Compiles up to `max_rounds` rounds of `simulation` on `data` as one call, without the initial state.

    Also returns a function of a number of rounds: their seconds and records, always from the same state, so that
    repetitions do the same work. With `cohort.axis` all devices share the cohorts.
    """
    numbers = hparams(learning_rate)
    state = jax.jit(replace(simulation, cohort=replace(simulation.cohort, axis=None)).init)(
        jax.random.key(0), data, numbers
    )
    run = lambda s, d, h, n: simulation.run_rounds(s, d, h, max_rounds, n)
    sharding = None
    if simulation.cohort.axis is not None:
        mesh = jax.make_mesh((jax.device_count(),), (CLIENTS,), axis_types=(jax.sharding.AxisType.Auto,))
        run = jax.shard_map(run, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
        sharding = NamedSharding(mesh, P())
    state, data, numbers, one = jax.device_put((state, data, numbers, jnp.int32(1)), sharding)
    program = compile_program(run, state, data, numbers, one, donate=0)

    def call(num_rounds: int) -> tuple[float, RoundRecord]:
        args = jax.block_until_ready((jax.tree.map(jnp.copy, state), data, numbers))
        rounds = jax.device_put(jnp.int32(num_rounds), sharding)
        started = time.perf_counter()
        _, records = jax.block_until_ready(program.call(*args, rounds))
        return time.perf_counter() - started, records

    return program, call


def compile_runs(functions: RunFunctions, inputs: RunInputs, shared: SharedInputs) -> Program:
    """Compiles all rounds of runs, from their initial models to the final states and the records."""

    def train(inputs: RunInputs, shared: SharedInputs) -> PyTree:
        return functions.chunk(functions.init(shared, inputs), shared, inputs, jnp.int32(functions.max_rounds))

    return compile_program(train, inputs, shared)


def compile_sweep(
    workload: Workload, layout: Layout, inputs: RunInputs, num_rounds: int
) -> tuple[Program, Callable[[], float]]:
    """Compiles all rounds of a sweep as `fedsim run` does, and returns a function that times its calls."""
    functions, place = workload.programs(layout, num_rounds)
    batches = [place(batch, P(RUNS)) for batch in cut_batches(inputs, layout.run_devices * layout.run_width)]
    shared = place(workload.shared(), P())
    program = compile_runs(functions, batches[0], shared)
    return program, lambda: sum(seconds_of(program, batch, shared) for batch in batches)


def seconds_of(program: Program, *args: Any) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    jax.block_until_ready(program.call(*args))
    return time.perf_counter() - started


def time_interleaved(calls: Sequence[Callable[[], float]], repeats: int) -> list[list[float]]:
    """Times each of `calls`, which return seconds, `repeats` times, interleaved so that slow moments affect all."""
    seconds = [[call() for call in calls] for _ in range(repeats)]
    return list(map(list, zip(*seconds, strict=True)))


def repetitions(seconds: float, min_seconds: float) -> int:
    """The number of repetitions of work of `seconds` that take `min_seconds`, at most `MAX_ROUNDS`."""
    return max(1, min(MAX_ROUNDS, math.ceil(min_seconds / seconds)))


def enough_rounds(calls: Sequence[Callable[[int], tuple[float, RoundRecord]]]) -> int:
    """The number of rounds that take the fastest of `calls` `MIN_SECONDS`. Warms all of them up."""
    fastest = min(call(1)[0] for call in calls)
    if fastest < MIN_SECONDS / 10:
        fastest = min(call(10)[0] for call in calls) / 10
    return repetitions(fastest, MIN_SECONDS)


def time_rounds(
    workload: Workload, simulations: Sequence[fedsim.Simulation], num_rounds: int | None, repeats: int
) -> list[dict[str, Any]]:
    """Time, FLOP/s and memory of each of `simulations`, which run the same rounds, interleaved.

    `num_rounds` defaults to what the fastest runs in half a second. Recorded losses count as work.
    """
    data = jax.tree.map(jnp.asarray, workload.dataset.train)
    max_rounds = num_rounds or MAX_ROUNDS
    compiled = [compile_rounds(simulation, data, workload.learning_rate, max_rounds) for simulation in simulations]
    programs, calls = zip(*compiled, strict=True)
    num_rounds = num_rounds or enough_rounds(calls)
    client_ids = np.asarray(calls[0](num_rounds)[1].client_ids)[:num_rounds]
    examples = int(workload.dataset.train.num_examples[client_ids].sum())
    training, loss = example_flops(workload)
    timed = [lambda call=call: call(num_rounds)[0] for call in calls]
    product, *timings = time_interleaved([large_product(), *timed], repeats)
    lines = []
    for simulation, program, seconds in zip(simulations, programs, timings, strict=True):
        median = statistics.median(seconds)
        flops_a_second = examples * (workload.epochs * training + simulation.losses.recorded * loss) / median
        samples = {"samples_per_second": examples * workload.epochs / median}
        line = speed(program, seconds, num_rounds) | samples | rate(flops_a_second, product)
        lines.append(line | memory(program))
    return lines


def memory(program: Program) -> dict[str, int]:
    """Memory of one program as its compiler reports it, and the peak of the whole process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    result = {"program_bytes": program.program_bytes, "process_peak_bytes_so_far": peak}
    stats = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        result["device_peak_bytes_so_far"] = stats["peak_bytes_in_use"]
    return result


def speed(program: Program, seconds: Sequence[float], count: int, unit: str = "round") -> dict[str, Any]:
    """Seconds of compiling, and of one `unit` of the `count` in a call, from those of several calls."""
    return {
        "trace_seconds": program.trace_seconds,
        "compile_seconds": program.compile_seconds,
        f"{unit}s_a_call": count,
        f"median_seconds_a_{unit}": statistics.median(seconds) / count,
        f"minimum_seconds_a_{unit}": min(seconds) / count,
    }


def rate(flops_per_second: float, product: Sequence[float]) -> dict[str, float]:
    """FLOP/s, and their share of the device's peak, which is the median of the large `product`'s seconds."""
    peak = 2 * _product_size() ** 3 / statistics.median(product)
    share = flops_per_second / peak
    return {"flops_per_second": flops_per_second, "peak_flops_per_second": peak, "share_of_peak": share}


def large_product() -> Callable[[], float]:
    """Times one large float32 matrix product; to be interleaved with the calls that are compared with it."""
    size = _product_size()
    a = jax.random.normal(jax.random.key(0), (size, size))
    program = compile_program(jnp.matmul, a, a)
    seconds_of(program, a, a)
    return lambda: seconds_of(program, a, a)


def _product_size() -> int:
    return PRODUCT_SIZES.get(jax.default_backend(), LARGE_PRODUCT)


def example_flops(workload: Workload) -> tuple[float, float]:
    """FLOPs of one example in training (forward and backward), and in the loss alone."""
    task, train = workload.simulation().task, workload.dataset.train
    batch = jnp.asarray(train.x[: workload.batch_size]), jnp.asarray(train.y[: workload.batch_size])
    size = len(batch[0])
    variables, mask = jax.eval_shape(task.init, jax.random.key(0)), jnp.ones(size, bool)
    training = flops.count_flops(loss_gradient(task), *variables, *batch, mask, jax.random.key(0))
    return training / size, flops.count_flops(task.metrics, variables, *batch, mask) / size


def line(out: Path | None, **measured: Any) -> None:
    """Prints `measured`, with device, versions and command, as a line of JSON; appends it to `out` if given."""
    text = json.dumps(short(measured | environment()))
    print(text, flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write(text + "\n")


def short(value: Any) -> Any:
    """`value` with all its floats rounded to four significant digits; NaN and infinity become None."""
    if isinstance(value, dict):
        return {key: short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [short(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    return value


def environment() -> dict[str, Any]:
    """Device, versions and command."""
    device = jax.devices()[0]
    versions = {"fedsim": fedsim.__version__, "python": platform.python_version()}
    return {
        "device": device.device_kind,
        "platform": device.platform,
        "num_devices": jax.device_count(),
        "num_cpus": len(cpus()) or os.cpu_count(),
        "versions": versions | {name: version(name) for name in VERSIONED},
        "command": command(),
    }


def cpus() -> list[int]:
    """The CPUs that this process may use; empty if the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def command() -> str:
    """The command line relative to the repository, without paths of this machine."""
    paths = "--out", "--python", "--envs"
    words, kept = iter(sys.argv[1:]), []
    for word in words:
        if word in paths:
            next(words, None)
        elif word.partition("=")[0] not in paths:
            kept.append(word)
    here = Path(__file__).resolve().parent
    return shlex.join(["python", str(Path(sys.argv[0]).resolve().relative_to(here.parent)), *kept])
