"""What a group would come to on a device that need not be there: compiled for it, and bounded by its peaks.

The time of a round is the best that can be: no device computes faster than its peak, or moves a step's arrays faster
than its memory; what a cache keeps between two kernels is not known here, and can beat that. Forward passes are
bounded by their products alone. Steps are counted on random cohorts, as in `engine.estimate`.
"""

import os
import time
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import distributions
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from fedsim.config.resolve import settings_under
from fedsim.config.schema import AttackConfig, Config
from fedsim.core import flops
from fedsim.core.types import FederatedDataset, PyTree, Task
from fedsim.engine import build, cache, hlo, memory
from fedsim.engine.compiling import GroupPrograms, refused
from fedsim.engine.estimate import FORWARD, passes, sgd_step
from fedsim.engine.fitting import models, widest
from fedsim.engine.layout import Layout
from fedsim.engine.plan import Group, Plan, narrower, program_of
from fedsim.engine.targets import Chip

SERVER_KEYS = ("server.aggregator", "server.pre_aggregators", "server.optimizer", "attack.kind")
COMPILERS = ("jax", "libtpu")  # and all whose names begin so
READING = 1  # of what compilers say: another number where `engine.hlo` counts in another way


class Step(NamedTuple):
    """A gradient step of all models in lockstep, compiled for a device."""

    flops: int  # of matrix products
    work: hlo.Work
    examples: int  # that it computes, over all models


class Forecast(NamedTuple):
    """A group on a target."""

    layout: Layout
    fits: bool
    needed: int | None  # bytes of a device beside the data; None: the compiler refused
    compile_seconds: float
    flops: float  # of a round of a run; 0: not known
    bytes: float  # that a run's training moves in a round
    round_seconds: float  # at best, of a run
    seconds: float  # at best, of all rounds of all runs


def family(plan: Plan, group: Group) -> Hashable:
    """Equal for groups that differ in nothing but the server's part: in memory and time, training outweighs that."""
    config, changes_inputs = program_of(plan.configs(group)[0])
    of_server = settings_under(config, *SERVER_KEYS)
    training = [setting for setting in config.settings if setting not in of_server]
    server = replace(config.server, aggregator="", pre_aggregators=(), optimizer="")
    static = replace(config, server=server, attack=AttackConfig(), settings=tuple(training))
    return static, changes_inputs, len(group.runs), group.layout


def forecast(plan: Plan, group: Group, devices: Sequence[jax.Device], chip: Chip) -> Forecast:
    """The widest layout of `group` that fits on `devices`, and what it would come to."""
    configs, dataset, seconds = plan.configs(group), plan.dataset(group), 0.0
    found: dict[Layout, memory.Needs | None] = {}

    def needs(layout: Layout) -> int | None:
        nonlocal seconds
        sizes = []
        for lowered in GroupPrograms(configs, dataset, layout, devices).lowered():
            size, taken = _sizes(lowered, devices)
            seconds += taken
            sizes.append(size)
        known = [size for size in sizes if size is not None]
        found[layout] = memory.hungriest(known) if len(known) == len(sizes) else None
        return None if found[layout] is None else sum(found[layout] or ())

    with build.own_errors(configs):
        layout, in_all = widest(narrower(group.layout, configs[0]), needs, chip.memory)
    needed = found[layout]
    step = compile_step(configs[0], dataset, layout, devices[0])
    training, losses, others = passes(configs[0], dataset, layout)
    computing = step.flops / chip.peaks[configs[0].engine.precision] / step.examples  # seconds an example
    moving = step.work.bytes / chip.bandwidth / step.examples
    a_round = (training * max(computing, moving) + losses * FORWARD * computing) / layout.client_devices
    all_rounds = configs[0].server.num_rounds * a_round + others * FORWARD * computing
    return Forecast(
        layout,
        in_all is not None and in_all <= chip.memory,
        None if needed is None else needed.beside,
        seconds,
        (training + FORWARD * losses) * step.flops / step.examples,
        training * step.work.bytes / step.examples,
        a_round,
        -(-len(configs) // layout.run_devices) * all_rounds,
    )


def _sizes(lowered: jax.stages.Lowered, devices: Sequence[jax.Device]) -> tuple[memory.Needs | None, float]:
    """What a program needs, None if the compiler refuses; and the seconds it compiled, now or when it was first."""

    def compile_() -> tuple[memory.Needs | None, float]:
        started = time.perf_counter()
        try:
            size = memory.needs(lowered.compile())
        except jax.errors.JaxRuntimeError as error:
            if not refused(error):
                raise
            size = None
        return size, time.perf_counter() - started

    size, seconds = cache.remembered(_key(lowered, devices), compile_)
    return None if size is None else memory.Needs(*size), seconds


def _key(lowered: jax.stages.Lowered, devices: Sequence[jax.Device]) -> str:
    """Changes with the program, the devices and the compilers."""
    versions = [f"{one.metadata['Name']} {one.version}" for one in distributions() if one.name.startswith(COMPILERS)]
    machine = f"{len(devices)} {devices[0].device_kind}, XLA_FLAGS={os.environ.get('XLA_FLAGS', '')}"
    return "\n".join([f"reading {READING}", *sorted(versions), machine, lowered.as_text()])


def compile_step(config: Config, dataset: FederatedDataset, layout: Layout, device: jax.Device) -> Step:
    """The models in lockstep on `device` make a step each."""
    batch = layout.micro_batch or min(config.client.batch_size, dataset.max_count)
    x, y = np.asarray(dataset.train.x[:batch]), np.asarray(dataset.train.y[:batch])
    lowered = lower_step(build.task(config, dataset, layout.backend), x, y, models(layout), device)
    found = cache.remembered(_key(lowered, [device]), lambda: hlo.work(lowered.compile().as_text() or ""))
    flops_of_one = step_flops(build.task(config, dataset, "cpu"), x, y)
    return Step(models(layout) * flops_of_one, hlo.Work(*found), models(layout) * batch)


def lower_step(task: Task, x: np.ndarray, y: np.ndarray, width: int, device: jax.Device) -> jax.stages.Lowered:
    """`width` models make a step of SGD each, on examples like `x` [B, ...] and `y` [B, ...]."""
    shape = partial(jax.ShapeDtypeStruct, sharding=SingleDeviceSharding(device))
    lockstep = jax.tree.map(lambda a: shape((width, *a.shape), a.dtype), _arguments(task, x, y))
    stepping = jax.jit(jax.vmap(sgd_step(task)), out_shardings=SingleDeviceSharding(device), donate_argnums=0)
    return stepping.lower(*lockstep)


def step_flops(task: Task, x: np.ndarray, y: np.ndarray) -> int:
    """FLOPs of the matrix products in a step; 0 where a loop's length is not known. Its "cpu" form has the fewest."""
    try:
        return flops.count(sgd_step(task), *_arguments(task, x, y))
    except ValueError:
        return 0


def _arguments(task: Task, x: np.ndarray, y: np.ndarray) -> tuple[PyTree, ...]:
    """The shapes of what a step of one model takes."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    return (jax.eval_shape(task.init, key), *jax.eval_shape(lambda: (x, y, jnp.ones(len(y), bool))), key)
