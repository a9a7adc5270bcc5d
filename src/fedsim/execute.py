"""Compiles and runs one group of runs: memory, chunks of rounds, evaluation, rows."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from fedsim import build, memory
from fedsim.config import Config
from fedsim.errors import ConfigError
from fedsim.layout import RUNS, Layout
from fedsim.rows import Columns, client_rows, round_rows
from fedsim.sweep import Group, Programs, make_mesh, prepare
from fedsim.types import ClientData, FederatedDataset, PyTree, RoundRecord, ServerState

SECONDS = ("seconds_compiling", "seconds_running")


@dataclass(frozen=True)
class Output:
    """What becomes of a group's results as they come."""

    rows: Callable[[int, dict[str, Columns]], None]  # round, {table: columns}
    model: Callable[[int, PyTree], None]  # run, its parameters after the last round
    save: Callable[[int, ServerState], None]  # round, states [S]: everything that is needed to go on from there
    restore: Callable[[ServerState], tuple[int, ServerState] | None]  # shapes -> the round and states to go on from
    status: Callable[[str], None]
    progress: Callable[[int], None]  # rounds done since the last call, over all runs


def run_group(configs: Sequence[Config], dataset: FederatedDataset, group: Group, output: Output) -> dict[str, float]:
    """Compiles and runs one group, whose runs are `configs`, from its start or from where `output` can restore it.

    Raises `ConfigError` where the programs do not fit into memory. Returns the seconds compiling and running.
    """
    config, num_runs, layout = configs[0], len(configs), group.layout
    output.status("compiling")
    mesh = make_mesh(layout)
    everywhere, by_run = (None if mesh is None else NamedSharding(mesh, spec) for spec in (P(), P(RUNS)))
    shared: ClientData = jax.device_put(dataset.train, everywhere)
    test = jax.device_put((dataset.x_test, dataset.y_test, dataset.test_clients), everywhere)
    padding = [configs[-1]] * (-num_runs % layout.run_devices)  # each device has as many runs
    inputs = jax.device_put(prepare([*configs, *padding], shared), by_run)
    corrupted = np.asarray(inputs.changes.corrupted)[:num_runs]
    counts = np.asarray(dataset.train.counts if inputs.changes.counts is None else inputs.changes.counts[:num_runs])
    counts = np.broadcast_to(counts, corrupted.shape)
    max_rounds = max(1, min(config.server.eval_every, config.server.num_rounds))

    def programs_of(layout: Layout) -> Programs:
        simulation = build.simulation(config, dataset, layout)
        return Programs(simulation, layout.run_width, max_rounds, dataset.num_test_clients, mesh)

    shapes = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=by_run),
        jax.eval_shape(programs_of(layout).init, shared, inputs),
    )

    def compiled(layout: Layout) -> list[jax.stages.Compiled]:
        programs = programs_of(layout)
        init = jax.jit(programs.init, out_shardings=by_run)
        chunk = jax.jit(programs.chunk, donate_argnums=0, out_shardings=by_run)
        return [
            init.lower(shared, inputs).compile(),
            chunk.lower(shapes, shared, inputs, jax.device_put(jnp.int32(0), everywhere)).compile(),
            jax.jit(programs.measure).lower(shapes, inputs, *test).compile(),
        ]

    started = time.perf_counter()
    init, chunk, measure = programs = compiled(layout)
    _check_memory(programs, layout, compiled)
    seconds_compiling = time.perf_counter() - started

    output.status("running")
    started = time.perf_counter()
    own = partial(jax.tree.map, lambda a: a[:num_runs])

    def evaluate(done: int, states: ServerState, records: RoundRecord | None) -> None:
        metrics, alpha = own(jax.device_get(measure(states, inputs, *test)))
        rows = {"rounds": round_rows(configs, group.runs, done, metrics, records, corrupted)}
        if records is not None and config.record.clients != "none":
            last_only = config.record.clients == "evaluated"
            rows["clients"] = client_rows(group.runs, done, records, metrics, alpha, counts, corrupted, last_only)
        output.rows(done, rows)

    restored = output.restore(shapes)
    if restored is None:
        done, states = 0, init(shared, inputs)
        evaluate(done, states, None)
    else:
        done, states = restored
        output.progress(done * num_runs)
    while done < config.server.num_rounds:
        num_rounds = min(max_rounds, config.server.num_rounds - done)
        states, on_device = chunk(states, shared, inputs, jax.device_put(jnp.int32(num_rounds), everywhere))
        records = jax.tree.map(lambda a, n=num_rounds: a[:num_runs, :n], jax.device_get(on_device))
        done += num_rounds
        evaluate(done, states, records)
        if done < config.server.num_rounds:
            output.save(done, states)
        output.progress(num_rounds * num_runs)
    if config.record.models:
        params = jax.device_get(states.params)
        for slot, run in enumerate(group.runs):
            output.model(run, jax.tree.map(lambda a, slot=slot: a[slot], params))
    return dict(zip(SECONDS, (seconds_compiling, time.perf_counter() - started), strict=True))


def _check_memory(
    programs: list[jax.stages.Compiled], layout: Layout, compiled: Callable[[Layout], list[jax.stages.Compiled]]
) -> None:
    """Raises `ConfigError`, with the largest widths that would fit, where the programs need more memory than there is.

    Out of memory ends a process on a CPU without a word, so this is known before anything runs.
    """
    needed, available = memory.needed(programs), memory.available()
    if needed <= available:
        return
    fits = next((other for other in layout.narrower() if memory.needed(compiled(other)) <= available), None)
    remedy = "nor do narrower ones fit: lower client.batch_size or engine.micro_batch, or run fewer runs in one sweep"
    if fits is not None:
        widths = f"engine.client_width = {fits.client_width}, engine.run_width = {fits.run_width}"
        remedy = f"these would fit: {widths}; a run that goes on keeps its widths: free memory for it"
    raise ConfigError(
        f"engine.client_width: {layout.client_width} clients x {layout.run_width} runs in lockstep need "
        f"{memory.gibibytes(needed)} beside the data, and {memory.gibibytes(available)} are free; {remedy}"
    )
