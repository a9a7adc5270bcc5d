"""Part c: many runs in one program, against one after another.

The runs differ in key and learning rate. `in turn` calls the compiled program of one run for each, and waits once at
the end; of many runs it does as many as fit into some seconds, and their time is scaled up (`runs_called`).
"""

import statistics
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

import fedsim
from accelerator_parts.ledger import Result, one_line
from accelerator_parts.timing import Program, compile_program, memory, seconds_of
from accelerator_parts.work import Work, hparams
from fedsim.core.types import Array, PyTree, ServerState

IN_TURN = 10.0  # seconds at most, about
REPEATS = 3


def measure(work: Work, numbers_of_runs: Sequence[int], num_rounds: int, tiny: bool) -> list[Result]:
    """Seconds of each number of runs in each way, without compiling, and their ratio to one after another."""
    data = jax.tree.map(jnp.asarray, work.dataset.train)
    simulation = work.simulation()
    states, rates = _runs(simulation, work, data, max(numbers_of_runs))

    def train(state: ServerState, learning_rate: Array, data: fedsim.ClientData) -> PyTree:
        """The model after a run."""
        numbers = hparams(1.0)._replace(learning_rate=learning_rate)
        return simulation.run_rounds(state, data, numbers, num_rounds)[0].variables.params

    first = jax.tree.map(lambda a: a[0], (states, rates))
    alone = compile_program(train, *first, data)
    one = min(seconds_of(alone.call, *first, data) for _ in range(2))
    results: list[Result] = []
    for num_runs in numbers_of_runs:
        runs = jax.tree.map(lambda a, num_runs=num_runs: a[:num_runs], (states, rates))
        called = max(1, min(num_runs, 2 if tiny else round(IN_TURN / one)))
        in_turn = _in_turn(alone, runs, called, data) * num_runs / called
        settings = {"workload": work.name, "runs": num_runs, "rounds": num_rounds, "learning_rates": "differ"}
        found = {"seconds": in_turn, "compile_seconds": alone.compile_seconds, "runs_called": called}
        results.append(Result(settings | {"way": "in turn"}, found | memory(alone)))
        for way, together in _ways(train, num_runs).items():
            try:
                program = compile_program(together, *runs, data)
                seconds_of(program.call, *runs, data)
                seconds = [seconds_of(program.call, *runs, data) for _ in range(1 if tiny else REPEATS)]
            except Exception as error:  # out of memory: the other way goes on
                results.append(Result(settings | {"way": way}, {"error": one_line(error)}))
                continue
            median = statistics.median(seconds)
            found = {"seconds": median, "compile_seconds": program.compile_seconds, "in_turn_ratio": in_turn / median}
            results.append(Result(settings | {"way": way}, found | memory(program)))
    return results


def _ways(train: Callable[..., PyTree], num_runs: int) -> dict[str, Callable[..., PyTree]]:
    """One program for all runs: all in lockstep, and an eighth of them at a time."""
    width = max(1, num_runs // 8)

    def mapped(states: ServerState, rates: Array, data: fedsim.ClientData) -> PyTree:
        return jax.lax.map(lambda run: train(*run, data), (states, rates), batch_size=width)

    return {"vmap": jax.vmap(train, in_axes=(0, 0, None)), f"map, {width} at a time": mapped}


def _runs(
    simulation: fedsim.Simulation, work: Work, data: fedsim.ClientData, num_runs: int
) -> tuple[ServerState, Array]:
    """First states and learning rates [S]."""

    @jax.jit
    @jax.vmap
    def begin(key: Array) -> ServerState:
        start_key, rounds_key = jax.random.split(key)
        variables, zeros = simulation.task.init(start_key), jnp.zeros(data.counts.shape)
        return simulation.begin(rounds_key, variables, (), data.counts, zeros, hparams(1.0))

    rates = [work.learning_rate * (1 + seed % 4) / 4 for seed in range(num_runs)]
    return begin(jax.random.split(jax.random.key(0), num_runs)), jnp.asarray(rates, jnp.float32)


def _in_turn(alone: Program, runs: tuple[ServerState, Array], called: int, data: fedsim.ClientData) -> float:
    """The seconds of the first `called` runs, one after another."""
    each = jax.block_until_ready([jax.tree.map(lambda a, run=run: a[run], runs) for run in range(called)])
    started = time.perf_counter()
    jax.block_until_ready([alone.call(*run, data) for run in each])
    return time.perf_counter() - started
