"""Part b: a round of W1 to W5 by clients in lockstep, precision and form of the layers."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedsim
from accelerator_parts.ledger import Result, one_line
from accelerator_parts.timing import (
    PRECISIONS,
    Program,
    compile_program,
    computing,
    example_flops,
    in_turn,
    memory,
    product,
    rate,
    seconds_of,
)
from accelerator_parts.work import Work, hparams
from fedsim.core.types import RoundRecord, ServerState

MAX_ROUNDS = 1000  # of a call
AT_LEAST, AT_MOST = 0.5, 4.0  # seconds of a call of the fastest, and of the slowest
SLOW = 10.0  # seconds of a round that is not repeated


@dataclass(frozen=True)
class Rounds:
    """Rounds of a simulation as one compiled call that always starts from the same state: repeats do the same."""

    program: Program
    arguments: tuple[Any, ...]

    def seconds(self, num_rounds: int) -> float:
        """Of a call of `num_rounds` rounds."""
        return seconds_of(self.program.call, *self.arguments, jnp.int32(num_rounds))

    def cohorts(self, num_rounds: int) -> np.ndarray:
        """The clients [rounds, K] of a call."""
        return np.asarray(self.program.call(*self.arguments, jnp.int32(num_rounds))[1].client_ids)[:num_rounds]


def compile_rounds(simulation: fedsim.Simulation, data: fedsim.ClientData, learning_rate: float) -> Rounds:
    """The program of up to `MAX_ROUNDS` rounds of FedAvg."""
    numbers = hparams(learning_rate)
    variables = jax.jit(simulation.task.init)(jax.random.key(0))
    state = simulation.begin(jax.random.key(1), variables, (), data.counts, jnp.zeros(data.counts.shape), numbers)

    def run(
        state: ServerState, data: fedsim.ClientData, numbers: fedsim.HParams, num_rounds: jax.Array
    ) -> tuple[ServerState, RoundRecord]:
        return simulation.run_rounds(state, data, numbers, MAX_ROUNDS, num_rounds)

    arguments = state, data, numbers
    return Rounds(compile_program(run, *arguments, jnp.int32(1)), arguments)


def measure(work: Work, width: int, precision: str, forms: Sequence[str], tiny: bool) -> list[Result]:
    """A result for each of `forms`, all timed in turn with a large matrix product of the same type.

    A form that fails says so in its result, and the others go on; one that takes very long is timed once.
    """
    data = jax.tree.map(jnp.asarray, work.dataset.train)
    compiled: dict[str, Rounds] = {}
    apart: list[Result] = []  # not timed with the others
    settings = {
        "workload": work.name,
        "width": width,
        "precision": precision,
        "cohort_size": work.cohort_size,
        "batch_size": work.batch_size,
        "epochs": work.epochs,
    }
    for form in forms:
        try:
            with computing(precision):
                compiled[form] = compile_rounds(
                    work.simulation(form, PRECISIONS[precision][0], width), data, work.learning_rate
                )
            once = compiled[form].seconds(1)
            if once > SLOW:
                program = compiled.pop(form).program
                apart.append(Result(settings | {"form": form}, numbers_of(program, [once], 1) | memory(program)))
        except Exception as error:  # out of memory, or a form that the compiler does not take
            compiled.pop(form, None)
            apart.append(Result(settings | {"form": form}, {"error": one_line(error)}))
    if not compiled:
        return apart
    num_rounds, repeats = _size_of_call(list(compiled.values()), tiny)
    multiply, product_flops = product(precision, tiny)
    calls = [multiply, *(lambda one=one: one.seconds(num_rounds) for one in compiled.values())]
    product_seconds, *found = in_turn(calls, repeats)
    examples = int(work.dataset.train.counts[next(iter(compiled.values())).cohorts(num_rounds)].sum()) * work.epochs
    flops = examples * example_flops(work)
    return [
        Result(
            settings | {"form": form},
            numbers_of(rounds.program, seconds, num_rounds)
            | {"examples_per_second": examples / statistics.median(seconds)}
            | rate(flops, seconds, product_flops, product_seconds)
            | memory(rounds.program),
        )
        for (form, rounds), seconds in zip(compiled.items(), found, strict=True)
    ] + apart


def _size_of_call(programs: Sequence[Rounds], tiny: bool) -> tuple[int, int]:
    """Rounds of a call, and calls: enough for the clock, and not too long for the slowest."""
    if tiny:
        return 2, 1
    single = [min(one.seconds(1), one.seconds(1)) for one in programs]
    wanted, most = round(AT_LEAST / min(single)), round(AT_MOST / max(single))
    return max(1, min(wanted, max(most, 1), MAX_ROUNDS)), 5 if max(single) < AT_MOST else 2


def numbers_of(program: Program, seconds: Sequence[float], num_rounds: int) -> dict[str, Any]:
    """Compiling, and a round's seconds."""
    return {
        "trace_seconds": program.trace_seconds,
        "compile_seconds": program.compile_seconds,
        "rounds_a_call": num_rounds,
        "calls": len(seconds),
        "median_seconds_a_round": statistics.median(seconds) / num_rounds,
        "minimum_seconds_a_round": min(seconds) / num_rounds,
    }


def products(tiny: bool) -> list[Result]:
    """The peak: chains of large matrix products in each precision, in turn."""
    chains = {precision: product(precision, tiny) for precision in PRECISIONS}
    found = in_turn([call for call, _ in chains.values()], 1 if tiny else 7)
    return [
        Result({"product": precision}, {"flops_per_second": flops / statistics.median(seconds), "calls": len(seconds)})
        for (precision, (_, flops)), seconds in zip(chains.items(), found, strict=True)
    ]
