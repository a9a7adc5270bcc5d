"""Runs one group of runs: chunks of rounds, evaluation, rows."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from copy import copy
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from fedsim.core.types import PyTree, RoundRecord, SimulationState, Variables
from fedsim.engine import build, factories, processes
from fedsim.engine.compiling import Programs
from fedsim.engine.fitting import check_memory
from fedsim.engine.group_inputs import Inputs
from fedsim.engine.plan import Plan
from fedsim.engine.plugin_checks import check_round_weights
from fedsim.engine.stopping import Stopping
from fedsim.errors import ConfigError
from fedsim.runs.callbacks import Callback, Evaluation, Start
from fedsim.runs.checkpoints import Checkpoints
from fedsim.runs.schemas import Columns, Tables
from fedsim.runs.tables import RunClients, client_rows, info_rows, measured_quantities, round_rows
from fedsim.runs.writer import GroupWriter

log = logging.getLogger("fedsim")


class GroupRun:
    """Runs group `number` of a plan with its `programs`, which read `inputs`.

    `callbacks`, and then `writer`, see its evaluations. `num_completed` are the rounds of complete groups of the plan.
    """

    def __init__(
        self,
        plan: Plan,
        number: int,
        inputs: Inputs,
        programs: Programs,
        callbacks: Sequence[Callback],
        writer: GroupWriter,
        num_completed: int,
    ) -> None:
        self._plan, self._number, self._group = plan, number, inputs.group
        self._inputs, self._programs = inputs, programs
        self._configs, self._dataset = self._group.configs, self._group.dataset
        self._config, self._num_runs = self._configs[0], len(self._configs)
        self._family, self._callbacks, self._writer = inputs.family, callbacks, writer
        self._num_completed, self._last = num_completed, time.perf_counter()
        self._stopping = Stopping(self._config.server, self._num_runs)
        self.is_stopped = False
        """Whether a callback has stopped the experiment."""

    def run(self, checkpoints: Checkpoints, start: int) -> dict[str, float] | None:
        """Runs the group after the checkpoint of round `start`, or from its start if that is -1.

        Returns the seconds of compiling and running; None if a callback has stopped it. Raises `ConfigError` if the
        programs do not fit into memory.
        """
        with factories.plugin_errors(self._configs):
            self._inputs.place()
        self._check_labels()
        self._clients = self._read_clients()
        with factories.plugin_errors(self._plan.runs):
            check_memory(self._inputs)
            self._executables, compile_seconds = self._programs.compile()
        log.info(self._plan.describe(self._number, "running"))
        processes.wait_for_all()  # Gloo waits 30 s for a process that still compiles, and then gives up
        started = self._last = time.perf_counter()
        restored = [] if start < 0 else self._restore(checkpoints, start)
        with ExitStack() as stack:
            self._start(stack, start)
            self._states = restored or self._inputs.initial_states(self._executables)
            completed = self._run_rounds(start)
            if not self._is_last(completed):
                return None
            self._writer.finish(completed, *self._readers())
        return {"seconds_compiling": compile_seconds, "seconds_running": time.perf_counter() - started}

    def _start(self, stack: ExitStack, after: int) -> None:
        """Calls `on_start` of the callbacks, and `on_end` of those that have started at the end of `stack`."""
        data = self._read_data() if self._config.record.data else {}
        start = start_of(self._plan, self._number, after, self._count_completed(max(after, 0)), data)
        for callback in (*self._callbacks, self._writer):
            callback.on_start(start)
            stack.callback(callback.on_end)

    def _run_rounds(self, completed: int) -> int:
        """Runs all rounds after `completed` in chunks; -1 evaluates the initial models first.

        Returns the number of completed rounds; fewer than all if a callback, or all runs, have stopped.
        """
        server = self._config.server
        if completed < 0:
            completed = 0
            self._evaluate(completed, None)
        is_active = self._stopping.is_active if server.may_stop else None
        rounds = range(completed, server.num_rounds)
        with closing(self._inputs.chunks(self._executables, self._states, rounds, is_active)) as chunks:
            while not self._is_last(completed) and not self.is_stopped:
                with factories.plugin_errors(self._plan.runs):  # the program has branches of other groups
                    completed, records = next(chunks)
                own_records = self._family.own_info(self._join_on_host(records), self._config)
                check_round_weights(self._config, own_records, completed)
                self._evaluate(completed, own_records)
        return completed

    def _is_last(self, completed: int) -> bool:
        """Whether no run of the group trains after so many rounds."""
        return completed == self._config.server.num_rounds or not self._stopping.is_active.any()

    def _count_completed(self, completed: int) -> int:
        """The rounds of the plan that are complete, or not needed, when this group's runs have completed so many."""
        rounds = self._config.server.num_rounds if self._is_last(completed) else completed
        return self._num_completed + rounds * self._num_runs

    def _evaluate(self, completed: int, records: RoundRecord | None) -> None:
        """Measures the models after `completed` rounds; callbacks get the rows since the last evaluation."""
        inputs, shared, test = self._inputs, self._inputs.shared, self._inputs.evaluation
        executables, personal = self._executables, None
        join = lambda call, batches: self._join([call(*batch) for batch in zip(self._states, batches, strict=True)])
        metrics, alpha, validation, by_class, success = join(
            lambda state, runs: executables.measure(state, runs.hparams, runs.trigger_ids, shared.frozen, test),
            inputs.batches,
        )
        alpha = self._family.own_alpha(alpha, self._config)
        if measure_personal := executables.personal:
            personal = join(lambda state, runs: measure_personal(state, shared, runs, test), inputs.batches)
        clients, runs, recorded = self._clients, self._group.runs, self._config.record.clients
        rounds = round_rows(self._configs, runs, completed, metrics, records, clients, success, validation)
        tables: Tables = {"rounds": rounds}
        num_new = 0 if records is None else records.client_ids.shape[1] * int(self._stopping.is_active.sum())
        if recorded != "none" and (records is not None or alpha is not None):
            last_only = recorded == "evaluated"
            tables["clients"] = client_rows(runs, completed, records, metrics, alpha, clients, last_only)
        names = self._dataset.label_names, self._dataset.client_names
        quantities = measured_quantities(metrics, by_class, personal, *names)
        if info := info_rows(runs, completed, {} if records is None else records.info, quantities):
            tables["info"] = info
        positions = self._stopping.is_active.nonzero()[0]
        if len(positions) < len(runs):
            tables = {kind: _of_runs(columns, np.asarray(runs)[positions]) for kind, columns in tables.items()}
        self._stopping.observe(tables["rounds"], positions)
        seconds, self._last = time.perf_counter() - self._last, time.perf_counter()
        models, states = self._readers()
        evaluation = Evaluation(
            group=self._group.folder,
            round=completed,
            tables=tables,
            num_new=num_new,
            num_completed=self._count_completed(completed),
            seconds=seconds,
            is_last=self._is_last(completed),
            models=models,
            states=states,
        )
        shown = evaluation
        if jax.process_count() > 1:
            shown = replace(evaluation, models=_unavailable, states=_unavailable)

        def show(callback: Callback) -> bool | None:  # it may change its rows, but no others
            copies = {kind: {name: copy(column) for name, column in of.items()} for kind, of in tables.items()}
            return callback.after_evaluation(replace(shown, tables=copies))

        self.is_stopped = processes.decide(lambda: any(list(map(show, self._callbacks))))
        self._writer.after_evaluation(evaluation)
        if self.is_stopped and completed and not evaluation.is_last:
            self._writer.save(completed, evaluation.states)

    def _readers(self) -> tuple[Callable[[], Mapping[int, Variables]], Callable[[], list[SimulationState]]]:
        """Functions that return the models and states of now. They fail when the next rounds have begun."""
        return partial(self._models, states := list(self._states)), partial(self._saved_states, states)

    def _models(self, states: list[SimulationState]) -> Mapping[int, Variables]:
        models = self._join([batch.variables for batch in states])
        return {run: jax.tree.map(lambda a, i=i: a[i], models) for i, run in enumerate(self._group.runs)}

    def _saved_states(self, states: list[SimulationState]) -> list[SimulationState]:
        """The batches' states as they are saved: of all clients, without the slots of the family's other branches."""
        if any(old is not new for old, new in zip(states, self._states, strict=True)):
            raise RuntimeError("states: must be called before the next rounds start")
        return self._inputs.as_saved([self._family.own_state(batch, self._config) for batch in states])

    def _restore(self, checkpoints: Checkpoints, start: int) -> list[SimulationState]:
        """The batches' states after the checkpoint of round `start`."""
        if self._config.server.may_stop:
            self._stopping.replay(processes.decide(lambda: self._writer.read_rounds(start)))
        like = self._programs.states
        run_state = self._family.own_state(like, self._config)
        read = partial(checkpoints.restore, start)
        saved = self._inputs.restore(self._executables, run_state, start, read)
        return [self._family.with_slots(batch, like, self._config) for batch in saved]

    def _join(self, batches: list[PyTree]) -> PyTree:
        """The arrays [S, ...] of all runs, on the host, without those that fill up the last batch."""
        return self._join_on_host([processes.on_host(batch) for batch in batches])

    def _join_on_host(self, batches: list[PyTree]) -> PyTree:
        return jax.tree.map(lambda *arrays: np.concatenate(arrays)[: self._num_runs], *batches)

    def _read_clients(self) -> RunClients:
        """What the rows say of each run's clients."""
        batches = self._inputs.batches
        names = set(RunClients._fields) & set(batches[0].changes)
        changes = self._join([{name: runs.changes[name] for name in names} for runs in batches])
        corrupted = changes["corrupted"]
        clean = np.asarray(self._dataset.train.num_examples)
        num_examples = np.broadcast_to(changes.get("num_examples", clean), corrupted.shape)
        corrupted_rounds = np.asarray([config.corruption.rounds for config in self._configs])
        has_attack = np.asarray([config.attack.kind != "none" for config in self._configs])
        malicious = changes.get("malicious", corrupted) & has_attack[:, None]
        return RunClients(clean, num_examples, corrupted_rounds, corrupted, malicious)

    def _check_labels(self) -> None:
        """Raises `ConfigError` if a plug-in's corruption makes labels that are not among the classes."""
        corruptions = {factory for config in self._configs for factory in factories.corruptions_of(config)}
        plugins = [factory.name for factory in corruptions if factory.file is not None]
        num_classes = self._dataset.num_classes
        if not plugins or not num_classes or build.change_task(self._configs[0]) is not None:
            return
        for labels in self._inputs.changed_labels():
            for label in (labels.min(), labels.max()):
                if not 0 <= label < num_classes:
                    raise ConfigError(
                        f"corruption.kind: labels must be 0 to {num_classes - 1} in {self._dataset.name}, got {label} "
                        f"from {', '.join(plugins)}"
                    )

    def _read_data(self) -> Mapping[int, dict[str, np.ndarray]]:
        """The training data of each run."""
        clean = {name: np.asarray(a) for name, a in self._dataset.train._asdict().items() if a is not None}
        changes = self._join([runs.changes for runs in self._inputs.batches])
        return {
            run: clean | {name: a[position] for name, a in changes.items()}
            for position, run in enumerate(self._group.runs)
        }


def start_of(
    plan: Plan,
    number: int,
    after: int,
    num_completed: int,
    data: Mapping[int, dict[str, np.ndarray]] = MappingProxyType({}),
) -> Start:
    """What callbacks are told of group `number` when it starts after the round `after`; -1: at its beginning."""
    group = plan.groups[number]
    return Start(group.folder, group.runs, plan.runs, after, num_completed, plan.total_rounds, data)


def _of_runs(columns: Columns, runs: np.ndarray) -> Columns:
    """The rows of these runs."""
    is_kept = np.isin(columns["run"], runs)
    return {name: np.asarray(column)[is_kept] for name, column in columns.items()}


def _unavailable() -> Any:
    """Only process 0 has callbacks, and all processes have a part of the states."""
    raise ConfigError("callbacks: models and states are not available in a run of several processes; use record.models")
