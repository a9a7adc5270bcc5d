"""What a group's programs read: its shapes, the data on the host, and the data on the devices.

Here all examples are on the devices. `engine.streamed` has the same interface for data that stay on the host.
"""

from collections.abc import Callable, Generator, Sequence
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
from jax.sharding import NamedSharding, Sharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from fedsim.config.components import distinct_runs
from fedsim.config.schema import Config
from fedsim.core.types import Array, ClientData, HParams, PyTree, RoundRecord, SimulationState
from fedsim.engine import build, memory, processes
from fedsim.engine.data import make_backdoor_tests
from fedsim.engine.families import Family, Group
from fedsim.engine.inputs import EvaluationData, RunInputs, SharedInputs, batch_positions, cut_batches, make_run_inputs
from fedsim.engine.layout import RUNS, make_mesh
from fedsim.engine.model import make_task
from fedsim.engine.programs import Executables, RunFunctions

ReadStates: TypeAlias = Callable[[list[SimulationState]], list[SimulationState]]
"""Reads the saved states of batches, given their shapes."""
Functions: TypeAlias = dict[str, tuple[Callable[..., PyTree], tuple[PyTree, ...]]]
"""Functions to be compiled, and the shapes of their arguments, by the names of `Executables`."""


class InputShapes(NamedTuple):
    """The shapes of what a batch of runs reads."""

    shared: SharedInputs
    evaluation: EvaluationData
    runs: RunInputs
    losses: jax.ShapeDtypeStruct | None = None
    """[B, N] of all clients' losses before the first round, if these are measured in portions, of streamed data."""
    portion: jax.ShapeDtypeStruct | None = None
    """[P] of a portion's clients."""


class Inputs:
    """What the programs of a group read, on the first of `devices` (default: JAX's), and how its batches are computed.

    `place` puts the inputs there, and then `batches` [B] are the runs; the last run fills up the last batch.
    """

    shared: SharedInputs
    evaluation: EvaluationData
    batches: list[RunInputs]
    shared_spec: PyTree = P()
    """How `SharedInputs` are spread over the devices."""

    def __init__(self, group: Group, family: Family, devices: Sequence[jax.Device] | None = None) -> None:
        self.group, self.family = group, family
        self.devices = tuple(jax.devices() if devices is None else devices)
        self.mesh = mesh = make_mesh(group.layout, self.devices)
        on = lambda spec: SingleDeviceSharding(self.devices[0]) if mesh is None else NamedSharding(mesh, spec)
        self.everywhere: Sharding = on(P())  # of arrays with a copy on each device
        self.by_run: Sharding = on(P(RUNS))  # of arrays [B, ...], batches of runs
        self.runs_per_batch = group.layout.run_devices * group.layout.run_width

    @cached_property
    def host_data(self) -> tuple[SharedInputs, EvaluationData]:
        """What all runs share, on the host."""
        config, data = self.group.configs[0], self.group.dataset
        frozen = make_task(config, data, self.group.layout.backend).frozen
        shared = SharedInputs(ClientData(*data.train), frozen, data.root, self.family.branch(config))
        arrays, backdoors = (data.x_test, data.y_test, data.test_clients), self._backdoors[0]
        return shared, EvaluationData(*arrays, data.validation, backdoors)  # type: ignore[arg-type]

    @cached_property
    def _backdoors(self) -> tuple[ClientData, Array] | tuple[None, None]:
        return make_backdoor_tests(self.group.configs, self.group.dataset)

    @cached_property
    def hparams(self) -> HParams:
        """The traced numbers [S]."""
        return self.family.hparams(self.group.configs)

    @cached_property
    def shapes(self) -> InputShapes:
        """The shapes of what the programs read."""
        shared, evaluation = shapes_of(self.host_data, self.everywhere)
        return InputShapes(shared, evaluation, self.run_shapes(shared.train))

    def run_shapes(self, train: ClientData) -> RunInputs:
        """The shapes of a batch of runs, whose training data have these shapes."""
        make = lambda train: self._make_runs(distinct_runs(self.group.configs), train)
        of_batch = lambda a: self.batch_shape(a.dtype, *a.shape[1:])
        runs: RunInputs = jax.tree.map(of_batch, jax.eval_shape(make, train))
        return runs

    def batch_shape(self, dtype: jax.typing.DTypeLike, *shape: int) -> jax.ShapeDtypeStruct:
        """Of an array [B, *shape], an entry for each run of a batch."""
        return jax.ShapeDtypeStruct((self.runs_per_batch, *shape), dtype, sharding=self.by_run)

    def programs(self, functions: RunFunctions, states: SimulationState) -> Functions:
        """The programs of the group besides `init`; its batches have `states` of these shapes."""
        shared, evaluation, runs, *_ = self.shapes
        number = jax.ShapeDtypeStruct((), np.int32, sharding=self.everywhere)
        if self.group.configs[0].server.may_stop:
            number = self.batch_shape(np.int32)
        programs: Functions = {
            "chunk": (functions.chunk, (states, shared, runs, number)),
            "measure": (functions.measure, (states, runs.hparams, runs.trigger_ids, shared.frozen, evaluation)),
        }
        has_own_models = build.has_own_models(self.group.configs[0])
        if has_own_models and evaluation.clients is not None and not self.group.layout.buffer_examples:
            programs["personal"] = functions.personal, (states, shared, runs, evaluation)
        return programs

    def other_batch_bytes(self, states: SimulationState) -> int:
        """Bytes on a device, while a batch is computed, of all that the program does not get: the other batches."""
        num_others = -(-len(self.group.configs) // self.runs_per_batch) - 1
        return num_others * memory.tree_bytes((states, self.shapes.runs)) // self.group.layout.run_devices

    def place(self) -> None:
        """Puts the inputs on the devices, corrupted run by run."""
        self.shared, self.evaluation = processes.put(self.host_data, self.everywhere)
        runs = self._run_inputs(processes.local_copy(self.shared.train))
        self.batches = [processes.put(batch, self.by_run) for batch in runs]

    def _run_inputs(self, train: ClientData, *fields: frozenset[str]) -> list[RunInputs]:
        """The inputs of the runs in batches."""
        return cut_batches(self._make_runs(self.group.configs, train, *fields), self.runs_per_batch)

    def _make_runs(self, configs: Sequence[Config], train: ClientData, *fields: frozenset[str]) -> RunInputs:
        """The inputs of runs. Shapes are those of a batch, so that `configs` may be fewer than the triggers."""
        runs = make_run_inputs(configs, self.hparams, train, self.group.dataset.spec, *fields)
        return runs._replace(trigger_ids=self._backdoors[1])

    def changed_labels(self) -> list[np.ndarray]:
        """The labels that corruption changes, of all runs."""
        return [processes.on_host(runs.changes["y"]) for runs in self.batches if "y" in runs.changes]

    def initial_states(self, executables: Executables) -> list[SimulationState]:
        """The states [B] of each batch before the first round."""
        return [executables.init(self.shared, runs, None) for runs in self.batches]

    def chunks(
        self, executables: Executables, states: list[SimulationState], rounds: range, is_active: np.ndarray | None
    ) -> Generator[tuple[int, list[RoundRecord]], None, None]:
        """Computes the `rounds` (0: the first one), and replaces the batches' `states` by the next ones.

        Yields after each chunk the number of completed rounds, and each batch's records [B, rounds, ...] on the host.
        `is_active` [S], which may change in between, are the runs that train; None if none may be stopped.
        """
        for start in rounds[:: self.group.max_rounds]:
            num_rounds, records = min(self.group.max_rounds, rounds.stop - start), []
            for batch, runs in enumerate(self.batches):
                number = self.rounds_of(batch, num_rounds, is_active)
                states[batch], record = executables.chunk(states[batch], self.shared, runs, number)
                records.append(record)
            yield start + num_rounds, [first_rounds(processes.on_host(record), num_rounds) for record in records]

    def rounds_of(self, batch: int, num_rounds: int, is_active: np.ndarray | None) -> Array:
        """The rounds that a batch is to compute: of all its runs, or [B] of each if some may be stopped."""
        if is_active is None:
            return processes.put(np.int32(num_rounds), self.everywhere)
        positions = batch_positions(len(is_active), len(self.batches[0].key))[batch]
        return processes.put(np.int32(num_rounds) * is_active[positions], self.by_run)

    def as_saved(self, batches: list[SimulationState]) -> list[SimulationState]:
        """The batches' states as they are saved."""
        return batches

    def restore(
        self, executables: Executables, like: SimulationState, num_rounds: int, read: ReadStates
    ) -> list[SimulationState]:
        """The batches' states `like` this after `num_rounds` rounds; `read` returns those saved, given their shapes."""
        return read([like] * len(self.batches))


def first_rounds(record: RoundRecord, number: int) -> RoundRecord:
    """The records [B, number, ...] of the first rounds of a chunk: a program has room for more."""
    return jax.tree.map(lambda a: a[:, :number], record)


def shapes_of(tree: PyTree, sharding: Sharding) -> PyTree:
    """The shapes of a tree of arrays as JAX would hold them on the devices of `sharding`."""
    shape = partial(jax.ShapeDtypeStruct, sharding=sharding)
    return jax.tree.map(lambda a: shape(a.shape, a.dtype), jax.eval_shape(lambda tree: tree, tree))
