"""Forecasts of a group's memory and time on devices that need not be here: compiled for them, bounded by their peaks.

The time of a round is a lower bound: no device computes faster than its peak, or moves a step's arrays faster than its
memory. (What stays in a cache between two kernels is not known here, and can beat that.) Forward passes are bounded by
their products only. Steps are counted on random cohorts, as in `engine.estimate`.
"""

import os
import time
from collections.abc import Hashable, Sequence
from functools import partial
from importlib.metadata import distributions
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from fedsim.config.roles import SHAPE, part
from fedsim.config.schema import Config, Role
from fedsim.core import flops
from fedsim.core.contracts import Task
from fedsim.core.types import FederatedDataset, PyTree
from fedsim.engine import cache, collectives, factories, hlo, memory
from fedsim.engine.compiling import GroupCompiler, is_out_of_memory
from fedsim.engine.estimate import FORWARD_SHARE, count_examples, sgd_step
from fedsim.engine.inputs import changed_fields
from fedsim.engine.layout import Layout, widest_fitting
from fedsim.engine.model import make_task
from fedsim.engine.plan import Group, Plan
from fedsim.engine.programs import make_mesh
from fedsim.engine.targets import Chip

COMPILERS = ("jax", "libtpu")  # and all packages whose names begin so
CACHE_VERSION = 3  # of what is read from compiled programs; raise it if `engine.hlo` counts in another way


class StepCost(NamedTuple):
    """A gradient step of all models in lockstep, compiled for a device."""

    flops: int
    """FLOPs of matrix products; 0 if they are not known."""
    bytes: int
    """Bytes that its kernels move."""
    num_examples: int
    """Examples that it computes, over all models."""


class Forecast(NamedTuple):
    """A group on a target."""

    layout: Layout
    """The widest layout that fits, or the narrowest one."""
    fits: bool
    """Whether it fits into the memory of each device."""
    temp_bytes: int | None
    """Bytes of a device in addition to the data; None if the compiler runs out of memory."""
    compile_seconds: float
    """Seconds of compiling, when it was first done."""
    flops: float
    """FLOPs of a round of a run; 0 if they are not known."""
    bytes: float
    """Bytes that a run's training moves in a round."""
    round_seconds: float
    """Lower bound for a round of a run."""
    seconds: float
    """Lower bound for all rounds of all runs."""
    received_bytes: float = 0.0
    """Bytes that a device receives from other hosts in a round of a run."""


def training_key(plan: Plan, group: Group) -> Hashable:
    """Equal for groups that differ in the server's part only, and so hardly in memory and time."""
    configs = plan.configs(group)
    return part(configs[0], *SHAPE, Role.DATA), changed_fields(configs), len(configs), group.layout


def forecast(plan: Plan, group: Group, devices: Sequence[jax.Device], chip: Chip) -> Forecast:
    """Forecasts `group` on `devices` of the kind `chip`, with the widest layout that fits."""
    configs, dataset, compile_seconds = plan.configs(group), plan.dataset(group), 0.0
    peaks: dict[Layout, memory.ProgramMemory | None] = {}
    received: dict[Layout, int] = {}

    def peak_bytes(layout: Layout) -> int | None:
        nonlocal compile_seconds
        programs, mesh = [], make_mesh(layout, devices)
        hosts = [device.process_index for device in mesh.devices.flat] if mesh is not None else [0]
        for name, lowered in GroupCompiler(configs, dataset, layout, devices).lower().items():
            program, received_bytes, seconds = _measure_program(lowered, devices, hosts)
            compile_seconds += seconds
            programs.append(program)
            if name == "chunk":
                received[layout] = received_bytes
        known = [program for program in programs if program is not None]
        peak = peaks[layout] = memory.peak(known) if len(known) == len(programs) else None
        return None if peak is None else sum(peak)

    config = configs[0]
    with factories.plugin_errors(configs):
        layout, needed = widest_fitting(group.layout, config.engine, peak_bytes, chip.memory)
    peak = peaks[layout]
    step = step_cost(config, dataset, layout, devices[0])
    counts = count_examples(config, dataset, layout)
    example_flops, moved_bytes = step.flops / step.num_examples, step.bytes / step.num_examples
    compute_seconds = example_flops / chip.peak_flops[config.engine.precision]
    step_seconds = max(compute_seconds, moved_bytes / chip.bandwidth)
    forward_seconds = FORWARD_SHARE * compute_seconds
    round_seconds = (counts.training * step_seconds + counts.losses * forward_seconds) / layout.client_devices
    run_seconds = config.server.num_rounds * round_seconds + counts.evaluation * forward_seconds
    return Forecast(
        layout=layout,
        fits=needed is not None and needed <= chip.memory,
        temp_bytes=None if peak is None else peak.temp_bytes,
        compile_seconds=compile_seconds,
        flops=(counts.training + FORWARD_SHARE * counts.losses) * example_flops,
        bytes=counts.training * moved_bytes,
        round_seconds=round_seconds,
        seconds=-(-len(configs) // layout.run_devices) * run_seconds,
        received_bytes=received[layout] / layout.run_width,
    )


def _measure_program(
    lowered: jax.stages.Lowered, devices: Sequence[jax.Device], hosts: Sequence[int]
) -> tuple[memory.ProgramMemory | None, int, float]:
    """The memory of a program, None if the compiler runs out of it; the bytes that a device receives from other
    `hosts` in a round; and the seconds of compiling when first done.
    """

    def compile_program() -> tuple[memory.ProgramMemory | None, int, float]:
        started, received = time.perf_counter(), 0
        try:
            compiled = lowered.compile()
            program = memory.program_memory(compiled)
            received = collectives.received_bytes(compiled.as_text() or "", hosts) if len(set(hosts)) > 1 else 0
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_memory(error):
                raise
            program = None
        return program, received, time.perf_counter() - started

    program, received, seconds = cache.memoize(_cache_key(lowered, devices), compile_program)
    return None if program is None else memory.ProgramMemory(*program), received, seconds


def _cache_key(lowered: jax.stages.Lowered, devices: Sequence[jax.Device]) -> str:
    """Changes with the program, the devices and the compilers."""
    packages = [package for package in distributions() if package.name.startswith(COMPILERS)]
    versions = sorted(f"{package.name} {package.version}" for package in packages)
    machine = f"{len(devices)} {devices[0].device_kind}, XLA_FLAGS={os.environ.get('XLA_FLAGS', '')}"
    return "\n".join([f"version {CACHE_VERSION}", *versions, machine, lowered.as_text()])


def step_cost(config: Config, dataset: FederatedDataset, layout: Layout, device: jax.Device) -> StepCost:
    """Compiles a step of the models in lockstep for `device`."""
    batch = layout.micro_batch or min(config.client.batch_size, dataset.max_num_examples)
    x, y = np.asarray(dataset.train.x[:batch]), np.asarray(dataset.train.y[:batch])
    lowered = lower_step(make_task(config, dataset, layout.backend), x, y, layout.num_models, device)
    cost = cache.memoize(_cache_key(lowered, [device]), lambda: hlo.analyze_cost(lowered.compile().as_text() or ""))
    model_flops = step_flops(make_task(config, dataset, "cpu"), x, y)
    return StepCost(layout.num_models * model_flops, hlo.Cost(*cost).bytes, layout.num_models * batch)


def lower_step(task: Task, x: np.ndarray, y: np.ndarray, width: int, device: jax.Device) -> jax.stages.Lowered:
    """Traces a step of plain SGD of `width` models, on examples like `x` [B, ...] and `y` [B, ...]."""
    shape = partial(jax.ShapeDtypeStruct, sharding=SingleDeviceSharding(device))
    lockstep = jax.tree.map(lambda a: shape((width, *a.shape), a.dtype), _step_arguments(task, x, y))
    step = jax.jit(jax.vmap(sgd_step(task)), out_shardings=SingleDeviceSharding(device), donate_argnums=0)
    return step.lower(*lockstep)


def step_flops(task: Task, x: np.ndarray, y: np.ndarray) -> int:
    """FLOPs of the matrix products in a step; 0 if a loop's length is not known. The "cpu" form has the fewest."""
    try:
        return flops.count_flops(sgd_step(task), *_step_arguments(task, x, y))
    except ValueError:
        return 0


def _step_arguments(task: Task, x: np.ndarray, y: np.ndarray) -> tuple[PyTree, ...]:
    """The shapes of the arguments of a step of one model."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    return (jax.eval_shape(task.init, key), *jax.eval_shape(lambda: (x, y, jnp.ones(len(y), bool))), key)
