"""A group's inputs on its devices, and how its batches of runs are computed with them."""

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from jax.sharding import Sharding

from fedsim.core.types import PyTree, RoundRecord, SimulationState
from fedsim.engine import processes
from fedsim.engine.backdoors import BackdoorTests
from fedsim.engine.client_states import ClientStates
from fedsim.engine.inputs import EvaluationData, RunInputs, SharedInputs
from fedsim.engine.programs import Executables
from fedsim.engine.streaming import ClientStream, Segment


@dataclass(frozen=True)
class DeviceInputs:
    """What a group's programs read, on its devices."""

    shared: SharedInputs
    evaluation: EvaluationData
    batches: list[RunInputs]
    """The runs in batches [B]; the last run fills up the last batch."""
    backdoors: list[BackdoorTests] | None
    """Of each batch; None if no run has a backdoor."""
    everywhere: Sharding
    """Of arrays with a copy on each device."""
    by_run: Sharding
    """Of arrays [B, ...]."""
    stream: ClientStream | None = None
    """Gathers the clients' examples, which `shared` and `batches` lack; None if they are all on the devices."""
    client_states: list[ClientStates] | None = None
    """Of each batch, what the algorithm keeps for each client; None if it is on the devices, or nothing."""

    def on_host(self, tree: PyTree) -> PyTree:
        """NumPy copies of arrays on the group's devices; all processes call it."""
        return processes.on_host(tree)

    def changed_labels(self) -> list[np.ndarray]:
        """The labels that corruption changes, of all runs."""
        if self.stream is not None:
            return list(self.stream.labels or ())
        return [self.on_host(runs.changes["y"]) for runs in self.batches if "y" in runs.changes]

    def segments(self, completed: int, total: int, max_rounds: int) -> Generator[Segment, None, None]:
        """The inputs of all rounds from `completed` to `total`, by chunks of `max_rounds` and by batches."""
        if self.stream is not None:
            yield from self.stream.segments(completed, total)
            return
        for start in range(completed, total, max_rounds):
            for runs in self.batches:
                yield Segment(min(max_rounds, total - start), self.shared, runs)

    def initial_states(self, executables: Executables) -> list[SimulationState]:
        """The states [B] of each batch before the first round."""
        if self.stream is None:
            return [executables.init(self.shared, runs) for runs in self.batches]
        states = []
        for batch, runs in enumerate(self.batches):
            losses = np.zeros((len(runs.key), self.stream.num_clients), np.float32)
            with closing(self.stream.portions(batch)) as portions:
                for client_ids, segment in portions:
                    if executables.initial_losses is None:  # these are not used, but `init` needs inputs
                        break
                    measured = executables.initial_losses(
                        segment.shared, segment.runs, processes.put(client_ids, self.everywhere)
                    )
                    ids, values = self.on_host(measured)
                    np.put_along_axis(losses, ids, values, axis=1)
            states.append(executables.init(segment.shared, segment.runs, processes.put(losses, self.by_run)))
            if self.client_states is not None:
                self.client_states[batch].start(self.on_host(states[batch].client_states))
        return states

    def run(
        self, executables: Executables, batch: int, states: SimulationState, segment: Segment
    ) -> tuple[SimulationState, RoundRecord]:
        """Runs the rounds of a segment of a batch; returns the batch's states and the records [B, rounds, ...]."""
        number = processes.put(np.int32(segment.num_rounds), self.everywhere)
        if self.client_states is None:
            return executables.chunk(states, segment.shared, segment.runs, number)
        on_host = self.client_states[batch]
        on_host.update(segment.client_ids, segment.client_states)
        states = states._replace(client_states=processes.put(segment.client_states, self.by_run))
        states, records = executables.chunk(states, segment.shared, segment.runs, number)
        on_host.store(segment.client_ids, states.client_states)
        return states, records

    def with_all_clients(self, batches: list[SimulationState]) -> list[SimulationState]:
        """The batches' states with those of all clients that have trained, as they are saved."""
        if self.client_states is None:
            return batches
        saved = (on_host.save() for on_host in self.client_states)
        return [states._replace(client_states=clients) for states, clients in zip(batches, saved, strict=True)]

    def restore(
        self,
        executables: Executables,
        like: SimulationState,
        num_rounds: int,
        read: Callable[[list[SimulationState]], list[SimulationState]],
    ) -> list[SimulationState]:
        """The batches' states `like` this after `num_rounds` rounds; `read` returns those saved, given their shapes.

        What the algorithm keeps for clients on the host stays there, and a segment gets its part (`run`).
        """
        if self.client_states is None or self.stream is None:
            return read([like] * len(self.batches))
        trained = [self.stream.clients_before(batch, num_rounds) for batch in range(len(self.batches))]
        shapes = (on_host.saved_like(len(ids)) for on_host, ids in zip(self.client_states, trained, strict=True))
        saved = read([like._replace(client_states=clients) for clients in shapes])
        # Clients that have not trained have their initial states, which do not depend on losses.
        self.initial_states(executables._replace(initial_losses=None))
        for on_host, ids, states in zip(self.client_states, trained, saved, strict=True):
            on_host.restore(ids, states.client_states)
        return [states._replace(client_states=like.client_states) for states in saved]
