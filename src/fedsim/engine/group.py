"""Runs one group of runs: memory, chunks of rounds, evaluation, rows."""

import time
from contextlib import closing
from functools import partial

import jax
import numpy as np

from fedsim.core.types import Metrics, PyTree, RoundRecord, SimulationState
from fedsim.engine import factories, processes
from fedsim.engine.compiling import Programs
from fedsim.engine.fitting import check_memory
from fedsim.engine.group_inputs import Inputs, PlacedInputs
from fedsim.engine.plan import Plan
from fedsim.engine.plugin_checks import check_round_weights
from fedsim.engine.programs import Executables
from fedsim.errors import ConfigError
from fedsim.runs.checkpoints import Checkpoints
from fedsim.runs.events import Evaluated, FinalState, GroupStarted, Observer, RunData, RunModel
from fedsim.runs.schemas import Tables
from fedsim.runs.tables import RunClients, client_rows, info_rows, initial_client_rows, round_rows


class GroupRun:
    """Runs group `number` of `plan` with its `programs`, which read `inputs`; `observe` sees all events."""

    def __init__(self, plan: Plan, number: int, inputs: Inputs, programs: Programs, observe: Observer) -> None:
        self._plan, self._number, self._observe = plan, number, observe
        self._inputs, self._programs, self._group = inputs, programs, inputs.group
        self._configs, self._dataset = self._group.configs, self._group.dataset
        self._config, self._num_runs = self._configs[0], len(self._configs)
        self._family = inputs.family

    def run(self, checkpoints: Checkpoints, start: int | None) -> dict[str, float]:
        """Runs the group after the checkpoint of round `start`, or from its start if that is None.

        Returns the seconds of compiling and running. Raises `ConfigError` if the programs do not fit into memory.
        """
        with factories.plugin_errors(self._configs):
            inputs = self._inputs.place(self._programs.states)
        self._check_labels(inputs)
        self._clients = self._read_clients(inputs)
        if self._config.record.data:
            self._record_data(inputs)
        with factories.plugin_errors(self._plan.runs):
            check_memory(self._inputs)
            executables, compile_seconds = self._programs.compile()
        processes.wait_for_all()  # Gloo waits 30 s for a process that still compiles, and then gives up
        self._observe(self._plan.status(self._number, "running"))
        started = time.perf_counter()
        restored = None if start is None else self._restore(executables, checkpoints, start, inputs)
        states = self._run_rounds(executables, inputs, start or 0, restored)
        if self._config.record.final_states:
            saved = self._saved_states(states, inputs)
            self._observe(FinalState(self._number, self._config.server.num_rounds, saved))
        if self._config.record.models:
            models = self._join([batch.variables for batch in states])
            for position, run in enumerate(self._group.runs):
                self._observe(RunModel(run, jax.tree.map(lambda a, position=position: a[position], models)))
        return {"seconds_compiling": compile_seconds, "seconds_running": time.perf_counter() - started}

    def _run_rounds(
        self, executables: Executables, inputs: PlacedInputs, completed: int, states: list[SimulationState] | None
    ) -> list[SimulationState]:
        """Runs all rounds after `completed` from the batches' `states` (None: initial ones) in chunks.

        Returns their last states.
        """
        if states is None:
            self._observe(GroupStarted(self._number, -1, 0, self._group.folder))
            states = inputs.initial_states(executables)
            self._evaluate(executables, inputs, completed, states, None)
        else:
            self._observe(GroupStarted(self._number, completed, completed * self._num_runs, self._group.folder))
        with closing(inputs.chunks(executables, states, completed, self._config.server.num_rounds)) as chunks:
            for completed, records in chunks:
                own_records = self._own_records(records)
                check_round_weights(self._config, own_records, completed)
                self._evaluate(executables, inputs, completed, states, own_records)
        return states

    def _own_records(self, batches: list[list[tuple[RoundRecord, int]]]) -> RoundRecord:
        """The records [S, rounds, ...] of all runs, on the host, from those of each batch and segment."""
        joined = []
        for segments in batches:
            records = processes.on_host([record for record, _ in segments])
            rounds = [
                jax.tree.map(lambda a, n=number: a[:, :n], record)
                for record, (_, number) in zip(records, segments, strict=True)
            ]
            joined.append(jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *rounds))
        return self._family.own_info(self._join_on_host(joined), self._config)

    def _evaluate(
        self,
        executables: Executables,
        inputs: PlacedInputs,
        completed: int,
        states: list[SimulationState],
        records: RoundRecord | None,
    ) -> None:
        """Measures the models after `completed` rounds; observers see the rows since the last evaluation."""
        measured = [
            executables.measure(state, runs.hparams, inputs.shared.frozen, inputs.evaluation)
            for state, runs in zip(states, inputs.batches, strict=True)
        ]
        metrics, alpha, validation = self._join(measured)
        alpha = self._family.own_alpha(alpha, self._config)
        success: Metrics | None = None
        if executables.success is not None and inputs.backdoors is not None:
            success = self._join(
                [
                    executables.success(state, inputs.shared.frozen, tests)
                    for state, tests in zip(states, inputs.backdoors, strict=True)
                ]
            )
        clients, configs = self._clients, self._configs
        runs, record = self._group.runs, self._config.record
        rounds = round_rows(configs, runs, completed, metrics, records, clients, success, validation)
        tables: Tables = {"rounds": rounds}
        num_rounds = 0
        if records is None and alpha is not None and record.clients != "none":
            tables["clients"] = initial_client_rows(runs, metrics, alpha, clients)
        if records is not None:
            num_rounds = records.client_ids.shape[1] * self._num_runs
            if record.clients != "none":
                last_only = record.clients == "evaluated"
                rows = client_rows(runs, completed, records, metrics, alpha, clients, last_only)
                tables["clients"] = rows
            if records.info:
                tables["info"] = info_rows(runs, completed, records.info)
        is_last = completed == self._config.server.num_rounds
        saved = None if is_last else partial(self._saved_states, states, inputs)
        self._observe(Evaluated(self._number, completed, tables, num_rounds, saved))

    def _saved_states(self, states: list[SimulationState], inputs: PlacedInputs) -> list[SimulationState]:
        """The batches' states as they are saved: of all clients, without the slots of the family's other branches."""
        return inputs.as_saved([self._family.own_state(batch, self._config) for batch in states])

    def _restore(
        self, executables: Executables, checkpoints: Checkpoints, start: int, inputs: PlacedInputs
    ) -> list[SimulationState]:
        """The batches' states after the checkpoint of round `start`."""
        like = self._programs.states
        run_state = self._family.own_state(like, self._config)
        saved = inputs.restore(executables, run_state, start, partial(checkpoints.restore, start))
        return [self._family.with_slots(batch, like, self._config) for batch in saved]

    def _join(self, batches: list[PyTree]) -> PyTree:
        """The arrays [S, ...] of all runs, on the host, without those that fill up the last batch."""
        return self._join_on_host([processes.on_host(batch) for batch in batches])

    def _join_on_host(self, batches: list[PyTree]) -> PyTree:
        return jax.tree.map(lambda *arrays: np.concatenate(arrays)[: self._num_runs], *batches)

    def _read_clients(self, inputs: PlacedInputs) -> RunClients:
        """What the rows say of each run's clients, which no round changes."""
        names = set(RunClients._fields) & set(inputs.batches[0].changes)
        changes = self._join([{name: runs.changes[name] for name in names} for runs in inputs.batches])
        corrupted = changes["corrupted"]
        num_examples = changes.get("num_examples", self._dataset.train.num_examples)
        has_attack = np.asarray([config.attack.kind != "none" for config in self._configs])
        malicious = changes.get("malicious", corrupted) & has_attack[:, None]
        return RunClients(np.broadcast_to(num_examples, corrupted.shape), corrupted, malicious)

    def _check_labels(self, inputs: PlacedInputs) -> None:
        """Raises `ConfigError` if a plug-in's corruption makes labels that are not among the classes."""
        corruptions = {factories.factory_of(config, "corruption.kind") for config in self._configs}
        plugins = [factory.name for factory in corruptions if factory.file is not None]
        num_classes = self._dataset.num_classes
        if not plugins or not num_classes:
            return
        for labels in inputs.changed_labels():
            for label in (labels.min(), labels.max()):
                if not 0 <= label < num_classes:
                    raise ConfigError(
                        f"corruption.kind: labels must be 0 to {num_classes - 1} in {self._dataset.name}, got {label} "
                        f"from {', '.join(plugins)}"
                    )

    def _record_data(self, inputs: PlacedInputs) -> None:
        """Passes the training data of each run to the observers."""
        clean = {name: np.asarray(a) for name, a in self._dataset.train._asdict().items() if a is not None}
        changes = self._join([runs.changes for runs in inputs.batches])
        for position, run in enumerate(self._group.runs):
            self._observe(RunData(run, clean | {name: a[position] for name, a in changes.items()}))
