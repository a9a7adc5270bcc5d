"""Compiled programs and their seconds, the peak of the device, memory and FLOPs.

FLOPs are those of the matrix products on real examples, counted from the trace of the plain products of the "cpu" form:
what a form computes beside them, padding, and clients that wait for others are nothing done. A share is that of a chain
of large matrix products of the same type, timed in turn with what it is compared with, at JAX's default precision.
"""

import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

import fedsim
from accelerator_parts.work import Work
from fedsim.core import flops
from fedsim.core.types import Array, PyTree, Task, Variables

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")
PRODUCT_SIZES = {"cpu": 1024}
PRECISIONS: dict[str, tuple[DTypeLike, str | None]] = {  # what the model computes in, and the precision of its products
    "float32": (jnp.float32, None),
    "float32 highest": (jnp.float32, "highest"),
    "bfloat16": (jnp.bfloat16, None),
}
LARGE_PRODUCT, CHAIN = 8192, 10  # other platforms' size; products one after another in a call


@dataclass(frozen=True)
class Program:
    """A compiled function, with the seconds that tracing and compiling took."""

    call: Callable[..., Any]
    trace_seconds: float
    compile_seconds: float
    program_bytes: int | None  # arguments, results (a donated argument and its result count once) and temporaries


def compile_program(fn: Callable[..., Any], *args: Any) -> Program:
    """`fn` compiled for `args`, on the device where they are."""
    started = time.perf_counter()
    lowered = jax.jit(fn).lower(*args)
    traced = time.perf_counter()
    compiled = lowered.compile()
    ended = time.perf_counter()
    return Program(compiled, traced - started, ended - traced, _bytes(compiled))


def _bytes(compiled: Any) -> int | None:
    memory = compiled.memory_analysis()
    if memory is None:
        return None
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return int(held + memory.temp_size_in_bytes)


def seconds_of(call: Callable[..., Any], *args: Any) -> float:
    """The seconds of one call, until its results are there."""
    started = time.perf_counter()
    jax.block_until_ready(call(*args))
    return time.perf_counter() - started


def in_turn(calls: Sequence[Callable[[], float]], repeats: int) -> list[list[float]]:
    """`repeats` times each of `calls`, which return seconds; in turn, so that a slow moment hits all alike."""
    seconds = [[call() for call in calls] for _ in range(repeats)]
    return [list(one) for one in zip(*seconds, strict=True)]


def computing(precision: str) -> AbstractContextManager[object]:
    """Makes the products that are traced inside those of a precision."""
    products = PRECISIONS[precision][1]
    return jax.default_matmul_precision(products) if products else nullcontext()


@cache
def product(precision: str, tiny: bool) -> tuple[Callable[[], float], int]:
    """The seconds of a chain of large matrix products in a precision, as a function, and the chain's FLOPs."""
    size, dtype = 256 if tiny else PRODUCT_SIZES.get(jax.default_backend(), LARGE_PRODUCT), PRECISIONS[precision][0]
    a = jax.random.normal(jax.random.key(0), (size, size), jnp.float32).astype(dtype)
    b = (jax.random.normal(jax.random.key(1), (size, size), jnp.float32) / size**0.5).astype(dtype)  # keeps lengths
    with computing(precision):
        chain = compile_program(lambda a, b: jax.lax.fori_loop(0, CHAIN, lambda _, left: left @ b, a), a, b)
    seconds_of(chain.call, a, b)
    return lambda: seconds_of(chain.call, a, b), 2 * CHAIN * size**3


def rate(work_flops: float, seconds: Sequence[float], product_flops: float, product_seconds: Sequence[float]) -> dict:
    """FLOP/s, and their share of the product's; by medians."""
    achieved, peak = work_flops / statistics.median(seconds), product_flops / statistics.median(product_seconds)
    return {"flops_per_second": achieved, "peak_flops_per_second": peak, "share_of_peak": achieved / peak}


def memory(program: Program) -> dict[str, int | None]:
    """What a program needs by its compiler's account, and the most that the device has had in use until now."""
    stats = jax.devices()[0].memory_stats() or {}
    return {"program_bytes": program.program_bytes, "device_peak_bytes_so_far": stats.get("peak_bytes_in_use")}


def example_flops(work: Work) -> float:
    """FLOPs of one of the work's examples in training, forward and backward."""
    train = work.dataset.train
    x, y = train.x[: work.batch_size], train.y[: work.batch_size]
    task = work.task("cpu")
    variables = jax.eval_shape(task.init, jax.random.key(0))
    return flops.count(gradient(task), variables.params, x, y, jnp.ones(len(y), bool), jax.random.key(0)) / len(y)


def gradient(task: Task) -> Callable[..., PyTree]:
    """The gradient of the training loss of `task`, which has no statistics: params, x, y, mask, key -> like params."""

    def loss(params: PyTree, *args: Array) -> Array:
        return task.loss(Variables(params), *args)[0]

    return jax.grad(loss)


def environment(tiny: bool) -> dict[str, Any]:
    """Device, versions and command."""
    device = jax.devices()[0]
    versions = {"fedsim": fedsim.__version__, "python": platform.python_version()}
    return {
        "device": device.device_kind,
        "platform": device.platform,
        "num_devices": jax.device_count(),
        "tiny": tiny,
        "versions": versions | {name: version(name) for name in PACKAGES},
        "command": command(),
    }


def command() -> str:
    """The command line without places: neither the folder of the script nor `--out` and `--data`."""
    kept: list[str] = []
    skipping = False
    for word in sys.argv[1:]:
        if word.startswith("--"):
            skipping = word in ("--out", "--data")
            if skipping or word.startswith(("--out=", "--data=")):
                continue
        elif skipping:
            continue
        kept.append(word)
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *kept])
