"""A family's programs: pure functions mapped over a batch of runs, the runs in lockstep on all devices.

A group's runs are cut into batches, so programs do not depend on their number. Several devices are a mesh with the axes
"runs" and "clients": each row of it takes an equal part of a batch, and its devices share the cohorts of these runs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from fedsim.core.evaluate import by_client, evaluate, evaluate_client, evaluate_clients
from fedsim.core.simulation import Simulation
from fedsim.core.types import Array, HParams, Metrics, PyTree, RoundRecord, SimulationState
from fedsim.engine.inputs import EvaluationData, RunInputs, SharedInputs
from fedsim.engine.layout import RUNS


class Measured(NamedTuple):
    """What is measured of the models of S runs after a round."""

    test: Metrics
    """Sums over all test examples [S] or, if these belong to clients, over those of each client [S, C]."""
    alpha: Array | None
    """Weights [S, N] of all clients, if the rule has them."""
    validation: Metrics | None
    """On the validation data [S]."""
    by_class: Metrics | None
    """On the test examples of each class [S, num_classes], if they are recorded."""
    success: Metrics | None
    """On the triggered examples of each run's backdoor [S], if a run has one."""


@dataclass(frozen=True)
class RunFunctions:
    """A family's programs as pure functions of a batch of S runs, arrays [S, ...], to be jitted by the caller.

    With a `mesh`, S is a multiple of its "runs" axis, and the simulation's cohort is sharded over its "clients" axis.
    """

    simulation: Simulation
    max_rounds: int
    """The most rounds of a chunk."""
    num_test_clients: int = 0
    """C, clients that have test examples."""
    num_classes: int = 0
    """Classes whose test examples are measured apart; 0: none."""
    local_steps: int = 0
    """Steps that each client trains before its own model is measured."""
    mesh: Mesh | None = None
    """The devices; None for a single one."""
    shared_spec: PyTree = field(default_factory=P)
    """How `SharedInputs` are spread over the mesh."""

    def init(self, shared: SharedInputs, inputs: RunInputs, losses: Array | None = None) -> SimulationState:
        """The states [S] before the first round; `losses` [S, N] are given if data are streamed."""

        def init_run(run: RunInputs, losses: Array | None, shared: SharedInputs) -> SimulationState:
            return self._bind(shared).init(run.key, run.data(shared), run.hparams, losses)

        return self.map(init_run, (inputs, losses), shared)

    def chunk(
        self, states: SimulationState, shared: SharedInputs, inputs: RunInputs, num_rounds: Array
    ) -> tuple[SimulationState, RoundRecord]:
        """Runs `num_rounds` <= `max_rounds` rounds of every run, or [S] of each; records are [S, max_rounds, K].

        With numbers of its own, a run's state stays as it is while others go on.
        """

        def run_rounds(
            state: SimulationState, run: RunInputs, own: Array | None, shared: SharedInputs, common: Array | None
        ) -> tuple[SimulationState, RoundRecord]:
            number = common if own is None else own
            return self._bind(shared).run_rounds(state, run.data(shared), run.hparams, self.max_rounds, number)

        own, common = (num_rounds, None) if num_rounds.ndim else (None, num_rounds)
        return self.map(run_rounds, (states, inputs, own), shared, common)

    def measure(
        self, states: SimulationState, hparams: HParams, trigger_ids: Array | None, frozen: PyTree, data: EvaluationData
    ) -> Measured:
        """What is measured of the models [S]."""

        def measure_run(
            state: SimulationState, hparams: HParams, trigger_id: Array | None, frozen: PyTree, data: EvaluationData
        ) -> Measured:
            task, variables = self.simulation.bind(frozen).task, state.variables
            if data.clients is None:
                metrics = evaluate(task, variables, data.x, data.y)
            else:
                metrics = evaluate_clients(task, variables, data.x, data.y, data.clients, self.num_test_clients)
            validation = data.validation
            validated = None if validation is None else evaluate(task, variables, validation.x, validation.y)
            by_class = None
            if self.num_classes:
                by_class = evaluate_clients(task, variables, data.x, data.y, data.y, self.num_classes)
            success = None
            if data.backdoors is not None and trigger_id is not None:
                success = evaluate_client(task, variables, data.backdoors, trigger_id)
            return Measured(metrics, self.simulation.client_weights(state, hparams), validated, by_class, success)

        return self.map(measure_run, (states, hparams, trigger_ids), frozen, data)

    def personal(
        self, states: SimulationState, shared: SharedInputs, inputs: RunInputs, evaluation: EvaluationData
    ) -> Metrics:
        """Metrics [S, N] of each client's own model on its test examples."""

        def measure_run(
            state: SimulationState, run: RunInputs, shared: SharedInputs, evaluation: EvaluationData
        ) -> Metrics:
            assert evaluation.clients is not None
            test = by_client(evaluation.x, evaluation.y, evaluation.clients, shared.train.num_examples.shape[0])
            return self._bind(shared).personal_metrics(state, run.data(shared), run.hparams, test, self.local_steps)

        return self.map(measure_run, (states, inputs), shared, evaluation)

    def _bind(self, shared: SharedInputs) -> Simulation:
        return self.simulation.bind(shared.frozen, shared.root, shared.branch, shared.state_rows)

    def map(self, fn: Callable[..., PyTree], runs: tuple[PyTree, ...], *shared: PyTree) -> PyTree:
        """`fn(*run, *shared)` over the leading axis [S] of all `runs`, on all devices."""

        def map_local(runs: tuple[PyTree, ...], *shared: PyTree) -> PyTree:
            return jax.vmap(lambda run: fn(*run, *shared))(runs)

        if self.mesh is None:
            return map_local(runs, *shared)
        specs = (P(RUNS), *(self.shared_spec if isinstance(a, SharedInputs) else P() for a in shared))
        sharded = jax.shard_map(map_local, mesh=self.mesh, in_specs=specs, out_specs=P(RUNS), check_vma=False)
        return sharded(runs, *shared)


class Executables(NamedTuple):
    """A family's compiled programs (see `RunFunctions`)."""

    init: jax.stages.Compiled
    chunk: jax.stages.Compiled
    measure: jax.stages.Compiled
    personal: jax.stages.Compiled | None = None
    """Measures clients' own models; None if they have none, or no test examples."""
    initial_losses: jax.stages.Compiled | None = None
    """Measures losses before the first round, of data that stay on the host; None if they are not used."""
