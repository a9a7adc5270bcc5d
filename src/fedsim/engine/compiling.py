"""Compiles a group's programs from shapes alone: also ahead of time, and for devices of another machine."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cached_property, partial
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, Sharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from fedsim.config.schema import Config
from fedsim.core.types import ClientData, FederatedDataset, PyTree, SimulationState
from fedsim.engine import build, memory
from fedsim.engine.devices import compiler_options
from fedsim.engine.inputs import (
    BackdoorTests,
    EvaluationData,
    RunInputs,
    SharedInputs,
    make_backdoor_tests,
    make_run_inputs,
)
from fedsim.engine.layout import RUNS, Layout
from fedsim.engine.programs import RunFunctions, make_mesh


class DeviceInputs(NamedTuple):
    """A group's arrays on its devices, or their shapes."""

    shared: SharedInputs
    evaluation: EvaluationData
    runs: RunInputs
    """[S], padded so that each device has as many runs."""
    backdoors: BackdoorTests | None
    """None if no run has a backdoor."""


class Executables(NamedTuple):
    """A group's compiled programs (see `RunFunctions`)."""

    init: jax.stages.Compiled
    chunk: jax.stages.Compiled
    measure: jax.stages.Compiled
    success: jax.stages.Compiled | None = None
    """Measures backdoors; None if no run has one."""


class GroupCompiler:
    """Compiles the programs of the runs `configs` with `layout` for the first of `devices` (default: JAX's)."""

    def __init__(
        self,
        configs: Sequence[Config],
        dataset: FederatedDataset,
        layout: Layout,
        devices: Sequence[jax.Device] | None = None,
    ) -> None:
        config, padding = configs[0], [configs[-1]] * (-len(configs) % layout.run_devices)
        devices = jax.devices() if devices is None else devices
        mesh = make_mesh(layout, devices)
        self._everywhere, self._by_run = (
            SingleDeviceSharding(devices[0]) if mesh is None else NamedSharding(mesh, spec) for spec in (P(), P(RUNS))
        )
        self._options = compiler_options(devices[0])
        self.layout = layout
        self._configs, self._dataset = [*configs, *padding], dataset
        self.max_rounds = max(1, min(config.server.eval_every, config.server.num_rounds))
        simulation = build.simulation(config, dataset, layout)
        self._frozen = simulation.task.frozen
        self.functions = RunFunctions(simulation, layout.run_width, self.max_rounds, dataset.num_test_clients, mesh)
        self._future: Future[tuple[Executables, float]] | None = None

    def place(self) -> DeviceInputs:
        """Puts data and inputs on the devices, corrupted run by run."""
        shared, evaluation = jax.device_put(self._host_data(), self._everywhere)
        runs = make_run_inputs(self._configs, shared.train, self._dataset.spec)
        return DeviceInputs(
            shared, evaluation, jax.device_put(runs, self._by_run), self._place_backdoors(jax.device_put)
        )

    @cached_property
    def shapes(self) -> DeviceInputs:
        """The shapes of what `place` returns."""
        shared, evaluation = _shapes(self._host_data(), self._everywhere)
        runs = jax.eval_shape(lambda train: make_run_inputs(self._configs, train, self._dataset.spec), shared.train)
        return DeviceInputs(shared, evaluation, _shapes(runs, self._by_run), self._place_backdoors(_shapes))

    def _host_data(self) -> tuple[SharedInputs, EvaluationData]:
        data = self._dataset
        shared = SharedInputs(ClientData(*data.train), self._frozen, data.root)
        arrays = data.x_test, data.y_test, data.test_clients
        return shared, EvaluationData(*arrays, data.validation)  # type: ignore[arg-type]

    @cached_property
    def _backdoors(self) -> BackdoorTests | None:
        return make_backdoor_tests(self._configs, self._dataset)

    def _place_backdoors(self, put: Callable[[PyTree, Sharding], PyTree]) -> BackdoorTests | None:
        if self._backdoors is None:
            return None
        examples, trigger_ids = self._backdoors
        return BackdoorTests(put(examples, self._everywhere), put(trigger_ids, self._by_run))

    @cached_property
    def states(self) -> SimulationState:
        """The shapes [S] of the states, with their shardings."""
        return _shapes(jax.eval_shape(self.functions.init, self.shapes.shared, self.shapes.runs), self._by_run)

    def place_number(self, number: int) -> jax.Array:
        """Puts a number of rounds on all devices, for `Executables.chunk`."""
        return jax.device_put(np.int32(number), self._everywhere)

    def lower(self) -> list[jax.stages.Lowered]:
        """Traces the programs; returns their intermediate code in the order of `Executables`."""
        functions, (shared, evaluation, runs, backdoors) = self.functions, self.shapes
        number = jax.ShapeDtypeStruct((), np.int32, sharding=self._everywhere)
        init = jax.jit(functions.init, out_shardings=self._by_run)
        chunk = jax.jit(functions.chunk, donate_argnums=0, out_shardings=self._by_run)
        measure = jax.jit(functions.measure)
        lowered = [
            init.lower(shared, runs),
            chunk.lower(self.states, shared, runs, number),
            measure.lower(self.states, runs.hparams, shared.frozen, evaluation),
        ]
        if backdoors is not None:
            lowered.append(jax.jit(functions.success).lower(self.states, shared.frozen, backdoors))
        return lowered

    def submit(self, executor: Executor) -> None:
        """Traces now, in this thread with its settings of JAX, and compiles in the background."""
        self._future = executor.submit(_compile, *self._timed_lower(), self._options)

    def compile(self) -> tuple[Executables, float]:
        """The programs and the seconds of tracing and compiling; tries again what failed in the background."""
        if self._future is None or self._future.exception() is not None:
            executables = _compile(*self._timed_lower(), self._options)
            self._future = Future()
            self._future.set_result(executables)
        return self._future.result()

    def _timed_lower(self) -> tuple[list[jax.stages.Lowered], float]:
        started = time.perf_counter()
        return self.lower(), time.perf_counter() - started

    def cancel(self) -> None:
        """Cancels background compilation that has not started."""
        if self._future is not None:
            self._future.cancel()

    def peak_memory(self) -> memory.ProgramMemory | None:
        """The memory of a device that the programs need; None if the compiler runs out of memory."""
        try:
            executables, _ = self.compile()
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return None
        return memory.peak(memory.program_memory(program) for program in executables if program is not None)


def _compile(
    lowered: Sequence[jax.stages.Lowered], tracing_seconds: float, options: dict[str, str | bool]
) -> tuple[Executables, float]:
    started = time.perf_counter()
    executables = Executables(*(program.compile(options) for program in lowered))
    return executables, tracing_seconds + time.perf_counter() - started


def is_out_of_memory(error: jax.errors.JaxRuntimeError) -> bool:
    """Whether a program is too large for the memory of its device."""
    return "RESOURCE_EXHAUSTED" in str(error)


def _shapes(tree: PyTree, sharding: Sharding) -> PyTree:
    """The shapes of a tree of arrays as JAX would hold them on the devices of `sharding`."""
    shape = partial(jax.ShapeDtypeStruct, sharding=sharding)
    return jax.tree.map(lambda a: shape(a.shape, a.dtype), jax.eval_shape(lambda tree: tree, tree))


class BackgroundCompiler:
    """Compiles the next group in a thread while this group runs; a context that stops the thread at its end."""

    def __init__(self, make_compiler: Callable[[int], GroupCompiler]) -> None:
        self._make_compiler, self._executor = make_compiler, ThreadPoolExecutor(1)
        self._started: dict[int, GroupCompiler] = {}

    def __enter__(self) -> "BackgroundCompiler":
        return self

    def __exit__(self, *error: object) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def start(self, number: int) -> None:
        """Starts to compile group `number`, after all groups that were started before."""
        if number not in self._started:
            compiler = self._make_compiler(number)
            compiler.submit(self._executor)
            self._started[number] = compiler

    def take(self, number: int) -> GroupCompiler:
        """The compiler of group `number`; cancels all other groups that were started."""
        self.start(number)
        compiler = self._started.pop(number)
        for other in self._started.values():
            other.cancel()
        self._started.clear()
        return compiler
