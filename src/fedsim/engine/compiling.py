"""Compiles a family's programs from shapes alone: also ahead of time, and for devices of another machine."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, Sharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from fedsim.config.components import distinct_runs
from fedsim.config.fields import FIXED
from fedsim.config.schema import Config
from fedsim.config.sections import Role
from fedsim.core.types import ClientData, FederatedDataset, HParams, PyTree, SimulationState
from fedsim.engine import build, factories, memory, transfer
from fedsim.engine.backdoors import BackdoorTests, make_backdoor_tests
from fedsim.engine.client_states import ClientStates
from fedsim.engine.device_inputs import DeviceInputs
from fedsim.engine.devices import compiler_options
from fedsim.engine.families import Member, make_family, program_form
from fedsim.engine.family import Family
from fedsim.engine.inputs import EvaluationData, SharedInputs, buffer_shapes, make_run_inputs
from fedsim.engine.layout import RUNS, Layout
from fedsim.engine.model import make_task
from fedsim.engine.programs import Executables, RunFunctions, cut_batches, make_mesh
from fedsim.engine.shared_programs import InputShapes, SharedPrograms, shared_programs
from fedsim.engine.streaming import ClientStream, portion_size

ALL_FIELDS = frozenset(ClientData._fields)
STREAMED_FIELDS = ALL_FIELDS - {"x", "y"}


class GroupCompiler:
    """Compiles the programs of the runs `configs` with `layout` for the first of `devices` (default: JAX's).

    Groups with equal programs, such as those of a `family`, share them; a group without a family has one of its own.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        dataset: FederatedDataset,
        layout: Layout,
        devices: Sequence[jax.Device] | None = None,
        family: Family | None = None,
    ) -> None:
        self.family = family or make_family([Member(configs, dataset, layout)])
        self._config, self.runs_per_batch = configs[0], layout.run_devices * layout.run_width
        self._configs = configs
        devices = self._devices = tuple(jax.devices() if devices is None else devices)
        self._mesh = make_mesh(layout, devices)
        self._everywhere, self._by_run = (
            SingleDeviceSharding(devices[0]) if self._mesh is None else NamedSharding(self._mesh, spec)
            for spec in (P(), P(RUNS))
        )
        self._options = compiler_options(devices[0])
        self.layout, self._dataset = layout, dataset
        server = self._config.server
        self.max_rounds = max(1, min(server.eval_every, server.num_rounds))

    @cached_property
    def shared(self) -> SharedPrograms:
        """What this group shares with all groups that have equal programs."""
        family = self.family
        plugins = factories.plugins([*family.servers.values(), *family.attacks.values()])
        # A plug-in may depend on more than its code, so a later run traces it again.
        in_program = [plugin for plugin in plugins if FIXED[plugin.key].role in (Role.PROGRAM, Role.BRANCH)]
        own_family = family if in_program else None
        leaves, structure = jax.tree.flatten((self._host_data(), self._backdoors))
        key = (
            own_family,
            program_form(self._configs, self._dataset),
            tuple(family.servers),
            tuple(family.attacks),
            tuple(sorted((name, kind) for name, (_, kind) in family.settings.items())),
            family.max_num_examples,
            structure,
            tuple((np.shape(a), jnp.result_type(a)) for a in leaves),
            self.layout,
            self._portion_size if self._is_streamed else 0,
            self._devices,
            tuple(self._options.items()),
            tuple(jax.config.values.items()),
        )
        return shared_programs(key)

    @cached_property
    def functions(self) -> RunFunctions:
        """The programs as functions."""
        method, largest = self.family.method(self._dataset), self.family.max_num_examples
        simulation = build.simulation(self._config, self._dataset, self.layout, method, largest)
        return RunFunctions(simulation, self.max_rounds, self._dataset.num_test_clients, self._mesh, self._is_streamed)

    @property
    def _is_streamed(self) -> bool:
        """Whether the clients' examples stay on the host."""
        return self.layout.buffer_examples > 0

    @property
    def num_batches(self) -> int:
        """Batches of the group's runs."""
        return -(-len(self._configs) // self.runs_per_batch)

    def place(self) -> DeviceInputs:
        """Puts data and inputs on the devices, corrupted run by run; of streamed data, what is not an example."""
        host, evaluation = self._host_data()
        placed = host._replace(train=None) if self._is_streamed else host  # type: ignore[arg-type]
        shared, evaluation = transfer.put((placed, evaluation), self._everywhere)
        train = host.train if self._is_streamed else transfer.local_copy(shared.train)
        fields = STREAMED_FIELDS if self._is_streamed else ALL_FIELDS
        runs = make_run_inputs(self._configs, self._hparams, train, self._dataset.spec, fields)
        local_batches = cut_batches(runs, self.runs_per_batch)
        batches = transfer.put(local_batches, self._by_run)
        backdoors = stream = client_states = None
        if self._backdoors is not None:
            examples = transfer.put(self._backdoors.examples, self._everywhere)
            trigger_ids = cut_batches(self._backdoors.trigger_ids, self.runs_per_batch)
            backdoors = [BackdoorTests(examples, transfer.put(ids, self._by_run)) for ids in trigger_ids]
        if self.layout.buffer_clients:
            shapes, num_clients = self.states.client_states, self._dataset.num_clients
            client_states = [ClientStates(shapes, num_clients, self._everywhere) for _ in batches]
        if self._is_streamed:
            stream = ClientStream(
                self.functions.simulation,
                self._configs,
                self._dataset,
                self.layout,
                self.max_rounds,
                shared,
                batches,
                local_batches,
                self._by_run,
                client_states,
            )
        return DeviceInputs(
            shared, evaluation, batches, backdoors, self._everywhere, self._by_run, stream, client_states
        )

    @property
    def shapes(self) -> InputShapes:
        """The shapes of what `place` returns, for one batch."""
        if self.shared.shapes is None:
            self.shared.shapes = self._input_shapes()
        return self.shared.shapes

    def _input_shapes(self) -> InputShapes:
        shared, evaluation = _shapes(self._host_data(), self._everywhere)
        if self._is_streamed:
            shared = shared._replace(train=buffer_shapes(shared.train, self.layout.buffer_examples))
        configs = distinct_runs(self._configs)
        make = lambda train: make_run_inputs(configs, self._hparams, train, self._dataset.spec)
        runs = self._batch_shapes(jax.eval_shape(make, shared.train))
        if self.layout.buffer_clients:
            rows = jax.ShapeDtypeStruct((self._dataset.num_clients,), np.int32)
            shared = shared._replace(state_rows=rows)
        if self._is_streamed:
            tile = lambda a: jax.ShapeDtypeStruct(
                (self.layout.run_devices * a.shape[0], *a.shape[1:]), a.dtype, sharding=self._by_run
            )
            train, state_rows = jax.tree.map(tile, (shared.train, shared.state_rows))
            shared = shared._replace(train=train, state_rows=state_rows)
        if self._backdoors is None:
            return InputShapes(shared, evaluation, runs, None)
        examples, trigger_ids = self._backdoors
        tests = BackdoorTests(_shapes(examples, self._everywhere), self._batch_shapes(trigger_ids))
        return InputShapes(shared, evaluation, runs, tests)

    def _batch_shapes(self, runs: PyTree) -> PyTree:
        """The shapes of a batch of `runs` [S, ...]."""
        shape = lambda a: jax.ShapeDtypeStruct((self.runs_per_batch, *a.shape[1:]), a.dtype, sharding=self._by_run)
        return jax.tree.map(shape, runs)

    @cached_property
    def _hparams(self) -> HParams:
        return self.family.hparams(self._configs)

    def _host_data(self) -> tuple[SharedInputs, EvaluationData]:
        data, frozen = self._dataset, make_task(self._config, self._dataset, self.layout.backend).frozen
        shared = SharedInputs(ClientData(*data.train), frozen, data.root, self.family.branch(self._config))
        arrays = data.x_test, data.y_test, data.test_clients
        return shared, EvaluationData(*arrays, data.validation)  # type: ignore[arg-type]

    @cached_property
    def _backdoors(self) -> BackdoorTests | None:
        return make_backdoor_tests(self._configs, self._dataset)

    @property
    def states(self) -> SimulationState:
        """The shapes [B] of a batch's states, with their shardings."""
        if self.shared.states is None:
            inputs = self.shapes.shared, self.shapes.runs, *self._loss_shapes
            self.shared.states = _shapes(jax.eval_shape(self.functions.init, *inputs), self._by_run)
        return self.shared.states

    def on_host(self, tree: PyTree) -> PyTree:
        """NumPy copies of arrays on the group's devices; all processes call it."""
        return transfer.on_host(tree, self._everywhere)

    def lower(self) -> dict[str, jax.stages.Lowered]:
        """Traces the programs; returns their intermediate code by the names of `Executables`."""
        functions, (shared, evaluation, runs, backdoors) = self.functions, self.shapes
        number = jax.ShapeDtypeStruct((), np.int32, sharding=self._everywhere)
        init = jax.jit(functions.init, out_shardings=self._by_run)
        chunk = jax.jit(functions.chunk, donate_argnums=0, out_shardings=self._by_run)
        measure = jax.jit(functions.measure)
        lowered = {
            "init": init.lower(shared, runs, *self._loss_shapes),
            "chunk": chunk.lower(self.states, shared, runs, number),
            "measure": measure.lower(self.states, runs.hparams, shared.frozen, evaluation),
        }
        if backdoors is not None:
            lowered["success"] = jax.jit(functions.success).lower(self.states, shared.frozen, backdoors)
        if self._is_streamed and self.family.uses_losses(self._dataset):
            client_ids = jax.ShapeDtypeStruct((self._portion_size,), np.int32, sharding=self._everywhere)
            lowered["initial_losses"] = jax.jit(functions.initial_losses).lower(shared, runs, client_ids)
        return lowered

    @cached_property
    def _loss_shapes(self) -> list[jax.ShapeDtypeStruct]:
        """The last argument of `init` if data are streamed: the losses [B, N] of all clients."""
        shape = (self.runs_per_batch, self._dataset.num_clients)
        return [jax.ShapeDtypeStruct(shape, np.float32, sharding=self._by_run)] if self._is_streamed else []

    @property
    def _portion_size(self) -> int:
        """The clients whose losses are computed together before the first round, if data are streamed."""
        return portion_size(np.asarray(self._dataset.train.num_examples), self.layout)

    def submit(self, executor: Executor) -> Future[tuple[Executables, float]]:
        """Traces now, in this thread with its settings of JAX, and compiles in the background, unless this was done."""
        compiled = self.shared.compiled
        if compiled is None or compiled.cancelled():
            compiled = executor.submit(_compile, *self._timed_lower(), self._options)
            self.shared.keep(compiled)
        return compiled

    def compile(self) -> tuple[Executables, float]:
        """The programs, and the seconds of tracing and compiling them, to the first group that asks."""
        executables, seconds = self._wait()
        is_first, self.shared.is_reported = not self.shared.is_reported, True
        return executables, seconds if is_first else 0.0

    def _wait(self) -> tuple[Executables, float]:
        """The programs and the seconds; tries again what was canceled or failed in the background."""
        if (compiled := self.shared.compiled) is not None:
            with contextlib.suppress(Exception):
                return compiled.result()
        compiled = Future()
        compiled.set_result(_compile(*self._timed_lower(), self._options))
        self.shared.keep(compiled)
        return compiled.result()

    def _timed_lower(self) -> tuple[dict[str, jax.stages.Lowered], float]:
        started = time.perf_counter()
        return self.lower(), time.perf_counter() - started

    def peak_memory(self) -> memory.ProgramMemory | None:
        """The memory of a device that the group needs; None if the compiler runs out of memory."""
        peak = self._program_memory
        if peak is None:
            return None
        waiting = (self.num_batches - 1) * memory.tree_bytes((self.states, self.shapes.runs)) // self.layout.run_devices
        if self._is_streamed:  # the next buffer, while the last one is in use
            waiting += (
                memory.tree_bytes((self.shapes.shared.train, self.shapes.runs.changes)) // self.layout.run_devices
            )
        return peak._replace(argument_bytes=peak.argument_bytes + waiting)

    @cached_property
    def _program_memory(self) -> memory.ProgramMemory | None:
        """The memory of a device that the programs need; None if the compiler runs out of memory."""
        try:
            executables, _ = self._wait()
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return None
        return memory.peak(memory.program_memory(program) for program in executables if program is not None)


def _compile(
    lowered: Mapping[str, jax.stages.Lowered], tracing_seconds: float, options: dict[str, str | bool]
) -> tuple[Executables, float]:
    started = time.perf_counter()
    executables = Executables(**{name: program.compile(options) for name, program in lowered.items()})
    return executables, tracing_seconds + time.perf_counter() - started


def is_out_of_memory(error: jax.errors.JaxRuntimeError) -> bool:
    """Whether a program is too large for the memory of its device."""
    return "RESOURCE_EXHAUSTED" in str(error)


def _shapes(tree: PyTree, sharding: Sharding) -> PyTree:
    """The shapes of a tree of arrays as JAX would hold them on the devices of `sharding`."""
    shape = partial(jax.ShapeDtypeStruct, sharding=sharding)
    return jax.tree.map(lambda a: shape(a.shape, a.dtype), jax.eval_shape(lambda tree: tree, tree))
