"""A group's programs on the devices of its layout: compiled from shapes alone, so also ahead of time or for others."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, Sharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from fedsim.config.schema import Config
from fedsim.core.types import ClientData, Examples, FederatedDataset, PyTree, ServerState
from fedsim.engine import build, memory
from fedsim.engine.devices import compiler_options
from fedsim.engine.inputs import RunInputs, Shared, prepare
from fedsim.engine.layout import RUNS, Layout
from fedsim.engine.programs import Programs, make_mesh
from fedsim.engine.triggers import Triggered, triggered


class TestSet(NamedTuple):
    """The test examples, on device."""

    x: Any  # [T, *feature]
    y: Any  # [T]
    clients: Any  # [T] where they belong to clients, else None
    validation: Examples | None = None  # clean examples that no client trains on, where there are some


class Placed(NamedTuple):
    """A group's arrays on its devices, or their shapes."""

    shared: Shared
    test: TestSet
    inputs: RunInputs  # [S], filled up so that each device has as many runs
    triggered: Triggered | None  # None: no run has a backdoor


class Compiled(NamedTuple):
    """A group's programs (see `Programs`)."""

    init: jax.stages.Compiled
    chunk: jax.stages.Compiled
    measure: jax.stages.Compiled
    success: jax.stages.Compiled | None = None  # of backdoors, where there are some

    @property
    def all(self) -> list[jax.stages.Compiled]:
        """Those that there are."""
        return [one for one in self if one is not None]


class GroupPrograms:
    """The programs of the runs `configs` with `layout`, on the first of `devices` (default: JAX's own)."""

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
        self._programs = Programs(simulation, layout.run_width, self.max_rounds, dataset.num_test_clients, mesh)
        self._begun: Future[tuple[Compiled, float]] | None = None

    def place(self) -> Placed:
        """Puts data and inputs on the devices, corrupted run by run."""
        shared, test = jax.device_put(self._host(), self._everywhere)
        inputs = prepare(self._configs, shared.train, self._dataset.spec)
        inputs = jax.device_put(inputs, self._by_run)
        return Placed(shared, test, inputs, self._on_devices(jax.device_put))

    def _host(self) -> tuple[Shared, TestSet]:
        data = self._dataset
        shared = Shared(ClientData(*data.train), self._frozen, data.root)
        return shared, TestSet(data.x_test, data.y_test, data.test_clients, data.validation)

    @cached_property
    def shapes(self) -> Placed:
        """What `place` gives, without its values."""
        shared, test = _shapes(self._host(), self._everywhere)
        inputs = jax.eval_shape(lambda train: prepare(self._configs, train, self._dataset.spec), shared.train)
        return Placed(shared, test, _shapes(inputs, self._by_run), self._on_devices(_shapes))

    @cached_property
    def _triggered(self) -> Triggered | None:
        return triggered(self._configs, self._dataset)

    def _on_devices(self, put: Callable[[PyTree, Sharding], PyTree]) -> Triggered | None:
        if (found := self._triggered) is None:
            return None
        return Triggered(put(found.examples, self._everywhere), put(found.which, self._by_run))

    @cached_property
    def states(self) -> ServerState:
        """The shapes [S] of the states, with their shardings."""
        return _shapes(jax.eval_shape(self._programs.init, self.shapes.shared, self.shapes.inputs), self._by_run)

    def number_of_rounds(self, number: int) -> jax.Array:
        """An argument of the chunk."""
        return jax.device_put(np.int32(number), self._everywhere)

    def needs(self) -> int | None:
        """Bytes of a device that the programs need, data included; None: the compiler refused for want of memory."""
        beside = self.beside()
        if beside is None:
            return None
        return beside + memory.hungriest(map(memory.needs, self.compiled()[0].all)).arguments

    def beside(self) -> int | None:
        """The same without the data and all else that is given to them."""
        try:
            return memory.needed(self.compiled()[0].all)
        except jax.errors.JaxRuntimeError as error:
            if not refused(error):
                raise
            return None

    def start(self, executor: Executor) -> None:
        """Traces now, in this thread with its settings of JAX, and compiles in the background, for `compiled`."""
        if self._begun is None:
            self._begun = executor.submit(_compile, *self._traced(), self._options)

    def compiled(self) -> tuple[Compiled, float]:
        """The programs, and the seconds that it took to make them; what failed in the background is tried again."""
        if self._begun is None or self._begun.exception() is not None:
            found = _compile(*self._traced(), self._options)
            self._begun = Future()
            self._begun.set_result(found)
        return self._begun.result()

    def cancel(self) -> None:
        """Nobody wants what was started."""
        if self._begun is not None:
            self._begun.cancel()

    def _traced(self) -> tuple[list[jax.stages.Lowered], float]:
        """The programs' intermediate code, and the seconds that it took."""
        started = time.perf_counter()
        return self.lowered(), time.perf_counter() - started

    def lowered(self) -> list[jax.stages.Lowered]:
        """The programs' intermediate code, in the order of `Compiled`."""
        programs, (shared, test, inputs, backdoors) = self._programs, self.shapes
        number = jax.ShapeDtypeStruct((), np.int32, sharding=self._everywhere)
        init = jax.jit(programs.init, out_shardings=self._by_run)
        chunk = jax.jit(programs.chunk, donate_argnums=0, out_shardings=self._by_run)
        measure = jax.jit(programs.measure)
        lowered = [
            init.lower(shared, inputs),
            chunk.lower(self.states, shared, inputs, number),
            measure.lower(self.states, inputs.hparams, shared.frozen, *test),
        ]
        if backdoors is not None:
            lowered.append(jax.jit(programs.success).lower(self.states, shared.frozen, *backdoors))
        return lowered


def _compile(
    lowered: Sequence[jax.stages.Lowered], tracing: float, options: dict[str, str | bool]
) -> tuple[Compiled, float]:
    started = time.perf_counter()
    return Compiled(*(one.compile(options) for one in lowered)), tracing + time.perf_counter() - started


def refused(error: jax.errors.JaxRuntimeError) -> bool:
    """Whether a compiler found a program too large for the device's memory."""
    return "RESOURCE_EXHAUSTED" in str(error)


def _shapes(tree: PyTree, sharding: Sharding) -> PyTree:
    """The shapes of arrays, on the host or not, as JAX would hold them on the devices of `sharding`."""
    shape = partial(jax.ShapeDtypeStruct, sharding=sharding)
    return jax.tree.map(lambda a: shape(a.shape, a.dtype), jax.eval_shape(lambda tree: tree, tree))


class Ahead:
    """Compiles in a thread of its own, so that the next group is ready when this one has run."""

    def __init__(self, make: Callable[[int], GroupPrograms]) -> None:
        self._make, self._executor = make, ThreadPoolExecutor(1)
        self._begun: dict[int, GroupPrograms] = {}

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, *error: object) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def take(self, number: int) -> GroupPrograms:
        """The programs of a group, which are being compiled or have been; all others that were begun are let go."""
        self.start(number)
        programs = self._begun.pop(number)
        for other in self._begun.values():
            other.cancel()
        self._begun.clear()
        return programs

    def start(self, number: int) -> None:
        """Begins with a group, once all that was begun before is compiled."""
        if number not in self._begun:
            programs = self._make(number)
            programs.start(self._executor)
            self._begun[number] = programs
