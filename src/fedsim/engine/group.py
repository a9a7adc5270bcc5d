"""Compiles and runs one group of runs: memory, chunks of rounds, evaluation, rows."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, Sharding
from jax.sharding import PartitionSpec as P

from fedsim.config.schema import Config
from fedsim.core.types import Array, ClientData, FederatedDataset, PyTree, RoundRecord, ServerState
from fedsim.engine import build, memory
from fedsim.engine.inputs import RunInputs, Shared, prepare
from fedsim.engine.layout import RUNS, Layout
from fedsim.engine.plan import Group
from fedsim.engine.programs import Programs, make_mesh
from fedsim.errors import ConfigError
from fedsim.runs.events import Begun, Evaluated, Observer, Prepared, Trained
from fedsim.runs.folder import SECONDS
from fedsim.runs.tables import Tables, client_rows, info_rows, round_rows

Restore = Callable[[ServerState], tuple[int, ServerState] | None]  # shapes [S] -> rounds done and states; None: start


class TestSet(NamedTuple):
    """The test examples, on device."""

    x: Any  # [T, *feature]
    y: Any  # [T]
    clients: Any  # [T] where they belong to clients, else None


class Placed(NamedTuple):
    """A group's arrays on its devices."""

    shared: Shared
    test: TestSet
    inputs: RunInputs  # [S], filled up so that each device has as many runs


class Compiled(NamedTuple):
    """A group's programs (see `Programs`)."""

    init: jax.stages.Compiled
    chunk: jax.stages.Compiled
    measure: jax.stages.Compiled


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
    ) -> None:
        self._number, self._group, self._configs, self._dataset = number, group, configs, dataset
        self._observer, self._status = observer, status
        self._config, self._num_runs = configs[0], len(configs)
        self._max_rounds = max(1, min(self._config.server.eval_every, self._config.server.num_rounds))
        self._mesh = make_mesh(group.layout)
        self._everywhere, self._by_run = self._sharding(P()), self._sharding(P(RUNS))

    def _sharding(self, spec: P) -> Sharding | None:
        return None if self._mesh is None else NamedSharding(self._mesh, spec)

    def run(self, restore: Restore) -> dict[str, float]:
        """Runs the group from its start, or from where `restore` goes on; returns the seconds compiling and running.

        Raises `ConfigError` where the programs do not fit into memory.
        """
        self._status("compiling")
        with build.own_errors(self._configs):
            placed = self.place()
        self._keep_data(placed)
        started = time.perf_counter()
        with build.own_errors(self._configs):
            shapes = self.state_shapes(placed)
            compiled = self.compile(self._group.layout, placed, shapes)
        self._check_memory(compiled, placed, shapes)
        compiling = time.perf_counter() - started

        self._status("running")
        started = time.perf_counter()
        states = self._rounds(compiled, placed, restore(shapes))
        if self._config.record.models:
            models = jax.device_get(states.variables)
            for slot, run in enumerate(self._group.runs):
                self._observer(Trained(run, jax.tree.map(lambda a, slot=slot: a[slot], models)))
        return dict(zip(SECONDS, (compiling, time.perf_counter() - started), strict=True))

    def place(self) -> Placed:
        """Puts data and inputs on the group's devices, corrupted run by run."""
        data, configs = self._dataset, self._configs
        padding = [configs[-1]] * (-self._num_runs % self._group.layout.run_devices)
        frozen = build.task(self._config, data).frozen
        shared = jax.device_put(Shared(ClientData(*data.train), frozen), self._everywhere)
        inputs = prepare([*configs, *padding], shared.train, data.spec)
        test = jax.device_put(TestSet(data.x_test, data.y_test, data.test_clients), self._everywhere)
        return Placed(shared, test, jax.device_put(inputs, self._by_run))

    def state_shapes(self, placed: Placed) -> ServerState:
        """The shapes [S] of the states, with their shardings."""
        init = self._programs(self._group.layout).init
        place = lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=self._by_run)
        return jax.tree.map(place, jax.eval_shape(init, placed.shared, placed.inputs))

    def compile(self, layout: Layout, placed: Placed, shapes: ServerState) -> Compiled:
        """The group's programs with the widths of `layout`."""
        programs, (shared, test, inputs) = self._programs(layout), placed
        init = jax.jit(programs.init, out_shardings=self._by_run)
        chunk = jax.jit(programs.chunk, donate_argnums=0, out_shardings=self._by_run)
        measure = jax.jit(programs.measure)
        return Compiled(
            init.lower(shared, inputs).compile(),
            chunk.lower(shapes, shared, inputs, self._number_of_rounds(0)).compile(),
            measure.lower(shapes, inputs.hparams, shared.frozen, *test).compile(),
        )

    def _programs(self, layout: Layout) -> Programs:
        simulation = build.simulation(self._config, self._dataset, layout)
        return Programs(simulation, layout.run_width, self._max_rounds, self._dataset.num_test_clients, self._mesh)

    def _number_of_rounds(self, number: int) -> Array:
        return jax.device_put(jnp.int32(number), self._everywhere)

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
            num_rounds = min(self._max_rounds, total - done)
            number = self._number_of_rounds(num_rounds)
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
        metrics, alpha = self._own(jax.device_get(measured))
        corrupted, counts = self._who(placed)
        runs, record = self._group.runs, self._config.record
        tables: Tables = {"rounds": round_rows(self._configs, runs, done, metrics, records, corrupted)}
        num_rounds = 0
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

    def _own(self, tree: PyTree) -> PyTree:
        """Without the runs that fill up the devices."""
        return jax.tree.map(lambda a: a[: self._num_runs], tree)

    def _who(self, placed: Placed) -> tuple[np.ndarray, np.ndarray]:
        """Who is corrupted, and how many examples each has, [S, N] both."""
        changes = placed.inputs.changes
        corrupted = np.asarray(changes["corrupted"])[: self._num_runs]
        counts = np.asarray(changes.get("counts", self._dataset.train.counts))
        return corrupted, np.broadcast_to(counts[: self._num_runs] if counts.ndim == 2 else counts, corrupted.shape)

    def _keep_data(self, placed: Placed) -> None:
        """Hands on the training data of each run, where they are to be kept."""
        if not self._config.record.data:
            return
        clean = {name: np.asarray(a) for name, a in self._dataset.train._asdict().items()}
        changes = self._own(jax.device_get(placed.inputs.changes))
        for slot, run in enumerate(self._group.runs):
            self._observer(Prepared(run, clean | {name: a[slot] for name, a in changes.items()}))

    def _check_memory(self, compiled: Compiled, placed: Placed, shapes: ServerState) -> None:
        """Raises `ConfigError`, with the largest widths that would fit, where the programs need more than there is.

        Out of memory ends a process on a CPU without a word, so this is known before anything runs.
        """
        layout, needed, available = self._group.layout, memory.needed(compiled), memory.available()
        if needed <= available:
            return
        fits = next(
            (other for other in layout.narrower() if memory.needed(self.compile(other, placed, shapes)) <= available),
            None,
        )
        remedy = (
            "nor do narrower ones fit: lower client.batch_size or engine.micro_batch, or run fewer runs in one sweep"
        )
        if fits is not None:
            widths = f"engine.client_width = {fits.client_width}, engine.run_width = {fits.run_width}"
            remedy = f"these would fit: {widths}; a run that goes on keeps its widths: free memory for it"
        raise ConfigError(
            f"engine.client_width: {layout.client_width} clients x {layout.run_width} runs in lockstep need "
            f"{memory.gibibytes(needed)} beside the data, and {memory.gibibytes(available)} are free; {remedy}"
        )
