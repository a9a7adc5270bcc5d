"""Compiles and runs one group of runs: memory, chunks of rounds, evaluation, rows."""

import time
from collections.abc import Callable, Sequence
from functools import cached_property

import jax
import numpy as np

from fedsim.config.schema import Config
from fedsim.core.types import FederatedDataset, Metrics, PyTree, RoundRecord, ServerState
from fedsim.engine import build, memory
from fedsim.engine.compiling import Compiled, GroupPrograms, Placed
from fedsim.engine.layout import Layout
from fedsim.engine.plan import Group
from fedsim.errors import ConfigError
from fedsim.runs.events import Begun, Evaluated, Last, Observer, Prepared, Trained
from fedsim.runs.folder import SECONDS
from fedsim.runs.schemas import Tables
from fedsim.runs.tables import client_rows, first_rows, info_rows, round_rows

Restore = Callable[[ServerState], tuple[int, ServerState] | None]  # shapes [S] -> rounds done and states; None: start


class GroupRun:
    """One group on its way from data to rows."""

    def __init__(
        self,
        number: int,
        group: Group,
        configs: Sequence[Config],
        dataset: FederatedDataset,
        observer: Observer,
        status: Callable[[str], None],
        programs: Callable[[], GroupPrograms],
    ) -> None:
        self._number, self._group, self._configs, self._dataset = number, group, configs, dataset
        self._observer, self._status = observer, status
        self._config, self._num_runs = configs[0], len(configs)
        self._make = programs

    @cached_property
    def _programs(self) -> GroupPrograms:
        return self._make()

    def run(self, restore: Restore) -> dict[str, float]:
        """Runs the group from its start, or from where `restore` goes on; returns the seconds compiling and running.

        Raises `ConfigError` where the programs do not fit into memory.
        """
        self._status("compiling")
        with build.own_errors(self._configs):
            placed = self._programs.place()
        self._check_labels(placed)
        self._keep_data(placed)
        with build.own_errors(self._configs):
            self._check_memory()
            compiled, compiling = self._programs.compiled()

        self._status("running")
        started = time.perf_counter()
        states = self._rounds(compiled, placed, restore(self._programs.states))
        if self._config.record.states:
            self._observer(Last(self._number, self._config.server.num_rounds, states))
        if self._config.record.models:
            models = jax.device_get(states.variables)
            for slot, run in enumerate(self._group.runs):
                self._observer(Trained(run, jax.tree.map(lambda a, slot=slot: a[slot], models)))
        return dict(zip(SECONDS, (compiling, time.perf_counter() - started), strict=True))

    def _rounds(self, compiled: Compiled, placed: Placed, restored: tuple[int, ServerState] | None) -> ServerState:
        """All rounds that are left, chunk by chunk; returns the last states."""
        total = self._config.server.num_rounds
        if restored is None:
            self._observer(Begun(self._number, -1, 0))
            done, states = 0, compiled.init(placed.shared, placed.inputs)
            self.evaluate(compiled, placed, done, states, None)
        else:
            done, states = restored
            self._observer(Begun(self._number, done, done * self._num_runs))
        while done < total:
            num_rounds = min(self._programs.max_rounds, total - done)
            number = self._programs.number_of_rounds(num_rounds)
            states, on_device = compiled.chunk(states, placed.shared, placed.inputs, number)
            records = jax.tree.map(lambda a, n=num_rounds: a[: self._num_runs, :n], jax.device_get(on_device))
            done += num_rounds
            self.evaluate(compiled, placed, done, states, records)
        return states

    def evaluate(
        self, compiled: Compiled, placed: Placed, done: int, states: ServerState, records: RoundRecord | None
    ) -> None:
        """Measures the models after `done` rounds, and hands on the rows since the evaluation before."""
        measured = compiled.measure(states, placed.inputs.hparams, placed.shared.frozen, *placed.test)
        metrics, alpha, validation = self._own(jax.device_get(measured))
        corrupted, counts = self._who(placed)
        runs, record = self._group.runs, self._config.record
        success = self._success(compiled, placed, states)
        of_rounds = round_rows(self._configs, runs, done, metrics, records, corrupted, success, validation)
        tables: Tables = {"rounds": of_rounds}
        num_rounds = 0
        if records is None and alpha is not None and record.clients != "none":
            tables["clients"] = first_rows(runs, metrics, alpha, counts, corrupted)
        if records is not None:
            num_rounds = records.client_ids.shape[1] * self._num_runs
            if record.clients != "none":
                last_only = record.clients == "evaluated"
                rows = client_rows(runs, done, records, metrics, alpha, counts, corrupted, last_only)
                tables["clients"] = rows
            if records.info:
                tables["info"] = info_rows(runs, done, records.info)
        is_last = done == self._config.server.num_rounds
        self._observer(Evaluated(self._number, done, tables, num_rounds, None if is_last else states))

    def _success(self, compiled: Compiled, placed: Placed, states: ServerState) -> Metrics | None:
        """Metrics [S] on triggered test examples, where a run has a backdoor."""
        if compiled.success is None or placed.triggered is None:
            return None
        found: Metrics = self._own(jax.device_get(compiled.success(states, placed.shared.frozen, *placed.triggered)))
        return found

    def _own(self, tree: PyTree) -> PyTree:
        """Without the runs that fill up the devices."""
        return jax.tree.map(lambda a: a[: self._num_runs], tree)

    def _who(self, placed: Placed) -> tuple[np.ndarray, np.ndarray]:
        """Who is corrupted, and how many examples each has, [S, N] both."""
        changes = placed.inputs.changes
        corrupted = np.asarray(changes["corrupted"])[: self._num_runs]
        counts = np.asarray(changes.get("counts", self._dataset.train.counts))
        return corrupted, np.broadcast_to(counts[: self._num_runs] if counts.ndim == 2 else counts, corrupted.shape)

    def _check_labels(self, placed: Placed) -> None:
        """Raises `ConfigError` where a corruption of the user's own makes labels that are no classes."""
        labels = placed.inputs.changes.get("y")
        sources = {build.corruption_source(config) for config in self._configs}
        if labels is None or not self._dataset.num_classes or all(source.file is None for source in sources):
            return
        found = np.asarray(labels)
        if found.min() < 0 or found.max() >= self._dataset.num_classes:
            wrong = found.min() if found.min() < 0 else found.max()
            names = ", ".join(source.name for source in sources if source.file is not None)
            raise ConfigError(
                f"corruption.kind: {names} makes the label {wrong}; those of {self._dataset.name} are "
                f"0 to {self._dataset.num_classes - 1}"
            )

    def _keep_data(self, placed: Placed) -> None:
        """Hands on the training data of each run, where they are to be kept."""
        if not self._config.record.data:
            return
        clean = {name: np.asarray(a) for name, a in self._dataset.train._asdict().items()}
        changes = self._own(jax.device_get(placed.inputs.changes))
        for slot, run in enumerate(self._group.runs):
            self._observer(Prepared(run, clean | {name: a[slot] for name, a in changes.items()}))

    def _check_memory(self) -> None:
        """Raises `ConfigError`, with the largest widths that would fit, where the programs need more than there is.

        Out of memory ends a process on a CPU without a word, so this is known before anything runs.
        """
        layout, needed, available = self._group.layout, self._programs.beside(), memory.available()
        if needed is not None and needed <= available:
            return
        fits = next((other for other in layout.narrower() if self._fits(other, available)), None)
        remedy = (
            "nor do narrower ones fit: lower client.batch_size or engine.micro_batch, or run fewer runs in one sweep"
        )
        single = memory.step_bytes(build.task(self._config, self._dataset), self._dataset, 1)
        if fits is None and single > available:
            step = memory.gibibytes(single)
            remedy = f"the model alone is too large, a step on one example needs {step}: use a smaller one"
        if fits is not None:
            widths = f"engine.client_width = {fits.client_width}, engine.run_width = {fits.run_width}"
            remedy = f"these would fit: {widths}; a run that goes on keeps its widths: free memory for it"
        needs = "more memory than the device has" if needed is None else f"{memory.gibibytes(needed)} beside the data"
        raise ConfigError(
            f"engine.client_width: {layout.client_width} clients x {layout.run_width} runs in lockstep need {needs}, "
            f"and {memory.gibibytes(available)} are free; {remedy}"
        )

    def _fits(self, layout: Layout, available: int) -> bool:
        needed = GroupPrograms(self._configs, self._dataset, layout).beside()
        return needed is not None and needed <= available
