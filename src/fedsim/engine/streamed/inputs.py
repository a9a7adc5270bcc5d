"""What a group's programs read if the clients' examples stay on the host (see `engine.group_inputs`)."""

from collections.abc import Generator, Sequence
from contextlib import closing
from functools import cached_property

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

from fedsim.core.types import Array, ClientData, PyTree, RoundRecord, SimulationState
from fedsim.engine import memory, processes
from fedsim.engine.families import Family, Group
from fedsim.engine.group_inputs import Functions, Inputs, InputShapes, ReadStates, first_rounds, shapes_of
from fedsim.engine.inputs import RunInputs, SharedInputs, buffer_shapes
from fedsim.engine.layout import RUNS
from fedsim.engine.programs import Executables, RunFunctions
from fedsim.engine.streamed.client_states import ClientStates
from fedsim.engine.streamed.stream import ClientStream, Segment, portion_size, prefetch

PLACED_FIELDS = frozenset(ClientData._fields) - {"x", "y"}


class StreamedInputs(Inputs):
    """What the programs of a group read: a buffer with the examples of some cohorts for each row of devices."""

    shared_spec: PyTree = SharedInputs(train=P(RUNS), frozen=P(), root=P(), branch=P(), state_rows=P(RUNS))  # type: ignore[arg-type]

    @cached_property
    def shapes(self) -> InputShapes:
        layout, everywhere, by_run = self.group.layout, self.everywhere, self.by_run
        sizes = np.asarray(self.group.dataset.train.num_examples)
        shared, evaluation = shapes_of(self.host_data, everywhere)
        train = buffer_shapes(shared.train, layout.buffer_examples)
        rows = jax.ShapeDtypeStruct(sizes.shape, np.int32) if layout.buffer_clients else None
        tile = lambda a: jax.ShapeDtypeStruct((layout.run_devices * a.shape[0], *a.shape[1:]), a.dtype, sharding=by_run)
        tiled, state_rows = jax.tree.map(tile, (train, rows))
        return InputShapes(
            shared._replace(train=tiled, state_rows=state_rows),
            evaluation,
            self.run_shapes(train),
            self.batch_shape(np.float32, len(sizes)),
            jax.ShapeDtypeStruct((portion_size(sizes, layout),), np.int32, sharding=everywhere),
        )

    def programs(self, functions: RunFunctions, states: SimulationState) -> Functions:
        programs = super().programs(functions, states)
        if self.family.uses_losses(self.group.dataset):

            def measure(run: RunInputs, shared: SharedInputs, client_ids: Array) -> tuple[Array, Array]:
                simulation = functions.simulation.bind(shared.frozen)
                return simulation.initial_losses(run.key, run.data(shared), client_ids)

            def initial_losses(shared: SharedInputs, runs: RunInputs, client_ids: Array) -> PyTree:
                """The clients `client_ids` [P] in another order, and their losses at the initial model, both [S, P]."""
                return functions.map(measure, (runs,), shared, client_ids)

            programs["initial_losses"] = initial_losses, (self.shapes.shared, self.shapes.runs, self.shapes.portion)
        return programs

    def other_batch_bytes(self, states: SimulationState) -> int:
        next_buffer = memory.tree_bytes((self.shapes.shared.train, self.shapes.runs.changes))
        return super().other_batch_bytes(states) + next_buffer // self.group.layout.run_devices

    def place(self) -> None:
        """As of `Inputs`: `shared` and `batches` lack the clients' examples, which `stream` gathers."""
        host, evaluation = self.host_data
        shared = host._replace(train=None)  # type: ignore[arg-type]
        self.shared, self.evaluation = processes.put((shared, evaluation), self.everywhere)
        local_batches = self._run_inputs(host.train, PLACED_FIELDS)
        self.batches = [processes.put(batch, self.by_run) for batch in local_batches]
        self.client_states: list[ClientStates] = []  # of each batch, if the algorithm keeps any
        if size := self.group.layout.buffer_clients:
            shapes = jax.tree.map(
                lambda a: jax.ShapeDtypeStruct((self.runs_per_batch, size, *a.shape), a.dtype),
                memory.training_shapes(self.group.configs[0], self.group.dataset)[0],
            )
            self.client_states = [ClientStates(shapes, self.group.dataset.num_clients) for _ in self.batches]
        self.stream = ClientStream(self.group, self.shared, self.batches, local_batches, self.by_run)

    def changed_labels(self) -> list[np.ndarray]:
        return list(self.stream.labels or ())

    def initial_states(self, executables: Executables) -> list[SimulationState]:
        states = []
        for batch, runs in enumerate(self.batches):
            losses = np.zeros((len(runs.key), self.stream.num_clients), np.float32)
            with closing(prefetch(self.stream.portions(batch))) as portions:
                for client_ids, segment in portions:
                    if executables.initial_losses is None:  # these are not used, but `init` needs inputs
                        break
                    ids = processes.put(client_ids, self.everywhere)
                    ids, values = processes.on_host(executables.initial_losses(segment.shared, segment.runs, ids))
                    np.put_along_axis(losses, ids, values, axis=1)
            states.append(executables.init(segment.shared, segment.runs, processes.put(losses, self.by_run)))
            if self.client_states:
                self.client_states[batch].start(processes.on_host(states[batch].client_states))
        return states

    def chunks(
        self, executables: Executables, states: list[SimulationState], rounds: range, is_active: np.ndarray | None
    ) -> Generator[tuple[int, list[RoundRecord]], None, None]:
        """As of `Inputs`; a batch's records are those of its segments."""
        join = lambda *parts: np.concatenate(parts, axis=1)
        with closing(prefetch(self.stream.segments(rounds))) as segments:
            for start in rounds[:: self.group.max_rounds]:
                num_rounds, records = min(self.group.max_rounds, rounds.stop - start), []
                for batch in range(len(self.batches)):
                    parts: list[tuple[RoundRecord, int]] = []
                    while sum(number for _, number in parts) < num_rounds:
                        segment = next(segments)
                        number = self.rounds_of(batch, segment.num_rounds, is_active)
                        states[batch], record = self._run(executables, batch, states[batch], segment, number)
                        parts.append((record, segment.num_rounds))
                    records.append(parts)
                on_host = [[first_rounds(processes.on_host(record), n) for record, n in parts] for parts in records]
                yield start + num_rounds, [jax.tree.map(join, *parts) for parts in on_host]

    def _run(
        self, executables: Executables, batch: int, states: SimulationState, segment: Segment, number: Array
    ) -> tuple[SimulationState, RoundRecord]:
        """Runs `number` rounds of a segment of a batch."""
        if not self.client_states:
            return executables.chunk(states, segment.shared, segment.runs, number)
        on_host = self.client_states[batch]
        states = states._replace(client_states=processes.put(on_host.load(segment.client_ids), self.by_run))
        states, records = executables.chunk(states, segment.shared, segment.runs, number)
        on_host.store(segment.client_ids, processes.on_host(states.client_states))
        return states, records

    def as_saved(self, batches: list[SimulationState]) -> list[SimulationState]:
        """The batches' states with those of all clients that have trained."""
        if not self.client_states:
            return batches
        saved = (on_host.save() for on_host in self.client_states)
        return [states._replace(client_states=clients) for states, clients in zip(batches, saved, strict=True)]

    def restore(
        self, executables: Executables, like: SimulationState, num_rounds: int, read: ReadStates
    ) -> list[SimulationState]:
        """As of `Inputs`. What the algorithm keeps for clients stays on the host; a segment gets its part."""
        if not self.client_states:
            return super().restore(executables, like, num_rounds, read)
        trained = [self.stream.clients_before(batch, num_rounds) for batch in range(len(self.batches))]
        shapes = (on_host.saved_like(len(ids)) for on_host, ids in zip(self.client_states, trained, strict=True))
        saved = read([like._replace(client_states=clients) for clients in shapes])
        # Clients that have not trained have their initial states, which do not depend on losses.
        self.initial_states(executables._replace(initial_losses=None))
        for on_host, ids, states in zip(self.client_states, trained, saved, strict=True):
            on_host.restore(ids, states.client_states)
        return [states._replace(client_states=like.client_states) for states in saved]


def make_inputs(group: Group, family: Family, devices: Sequence[jax.Device] | None = None) -> Inputs:
    """What the programs of the group read, with its data on the devices or on the host."""
    kind = StreamedInputs if group.layout.buffer_examples else Inputs
    return kind(group, family, devices)
