"""Seconds a round and memory for 10,000 to 10,000,000 clients, of which 20 train.

Every client has 10 examples of 8 floats. Clients share 1,000 examples (offsets may point anywhere), so that memory
shows the cost of each client. MLP 8-16-4, K 20, B 10, one epoch.

Prints one JSON line for each number of clients and rule. `draw` is the time to sample the cohort (a uniform number for
each client and the K largest), `aggregate` the time of the rule alone, which for ARFL takes passes over all clients'
losses; there, these are all different. Both are timed in separate loops, interleaved with the rounds. `rest` is the
difference, which should not grow with N. `init_seconds` is one call: ARFL needs the loss of every client once.
`--label` tells apart the lines of two versions of fedsim (`PYTHONPATH`).
"""

import argparse
from collections.abc import Callable

import jax
import jax.numpy as jnp
import measure
import numpy as np
from workloads import RULES, hparams, vectors

import fedsim
from fedsim.core.contracts import Aggregator
from fedsim.core.types import Array, ClientData, CohortReport, PyTree
from fedsim.core.waves import sample_cohort
from fedsim.models import MLP

EXAMPLES, FEATURES, CLASSES, COHORT, OWNERS = 10, 8, 4, 20, 100
MIN_SECONDS = 0.3  # of a timed call


def main() -> None:
    """Parses the arguments and measures each number of clients with each rule."""
    parser = measure.parser(__doc__, repeats=5)
    parser.add_argument(
        "--clients",
        type=measure.positive,
        nargs="+",
        default=[10_000, 100_000, 1_000_000, 10_000_000],
        help=f"N, at least {COHORT} (default 10,000 to 10,000,000)",
    )
    parser.add_argument("--label", default="", help="name of the version that is measured")
    parser.add_argument("--rules", nargs="+", choices=list(RULES), default=list(RULES), help="default: both")
    options = parser.parse_args()
    if min(options.clients) < COHORT:
        parser.error(f"--clients: must be at least {COHORT}, the cohort size, got {min(options.clients)}")
    for num_clients in sorted(options.clients):
        data = population(num_clients)
        for rule in options.rules:
            measure_rule(rule, data, options)


def population(num_clients: int) -> ClientData:
    """`num_clients` clients that share 1,000 examples."""
    train = vectors(OWNERS, EXAMPLES, FEATURES, CLASSES).train
    owners = np.arange(num_clients) % OWNERS
    shared = ClientData(
        train.x, train.y, train.offsets[owners], train.num_examples[owners], np.zeros(num_clients, bool)
    )
    return jax.tree.map(jnp.asarray, shared)


def measure_rule(rule: str, data: ClientData, options: argparse.Namespace) -> None:
    """Times rounds, sampling and the rule alone, interleaved, and prints a line."""
    simulation = fedsim.Simulation(
        task=fedsim.classification(MLP(CLASSES, (16,)), data.x[0]),
        method=lambda hparams, round: fedsim.Method(RULES[rule](hparams), fedsim.client_sgd(hparams)),
        cohort=fedsim.CohortOptions(COHORT),
        training=fedsim.TrainingOptions(EXAMPLES, max_num_examples=EXAMPLES),
        losses=fedsim.LossOptions(recorded=rule == "arfl"),
    )
    numbers = hparams(0.1)
    init = measure.compile_program(simulation.init, jax.random.key(0), data, numbers)
    init_seconds = measure.seconds_of(init, jax.random.key(0), data, numbers)
    rounds = measure.compile_rounds(simulation, data, 0.1)
    num_rounds = measure.enough_rounds([rounds], MIN_SECONDS)

    draw, num_draws = _repeated(draws, data)
    different = jax.random.exponential(jax.random.key(0), data.num_examples.shape)
    aggregate, num_aggregates = _repeated(
        lambda n, state, num_examples: aggregates(RULES[rule](numbers), n, state, num_examples),
        jax.jit(RULES[rule](numbers).init)(rounds.state.variables, data.num_examples, different),
        data.num_examples,
    )
    calls = [lambda: rounds(num_rounds)[0], draw, aggregate]
    rounds_timing, draw_timing, aggregate_timing = measure.time_interleaved(calls, options.repeats)
    seconds = rounds_timing.median / num_rounds
    draw_seconds, aggregate_seconds = draw_timing.median / num_draws, aggregate_timing.median / num_aggregates
    measure.line(
        options.out,
        benchmark="population",
        label=options.label,
        rule=rule,
        clients=data.num_examples.shape[0],
        cohort_size=COHORT,
        **measure.speed(rounds.program, rounds_timing, num_rounds),
        draw_seconds=draw_seconds,
        aggregate_seconds=aggregate_seconds,
        rest_seconds=seconds - draw_seconds - aggregate_seconds,
        init_seconds=init_seconds,
        samples_per_second=COHORT * EXAMPLES / seconds,
        init_bytes=init.program_bytes,
        **measure.memory(rounds.program),
    )


def draws(num_draws: Array, data: ClientData) -> Array:
    """The sum of `num_draws` cohorts, so that the compiler keeps all of them."""
    key = jax.random.key(0)
    draw = lambda i, total: total + sample_cohort(jax.random.fold_in(key, i), data.num_examples, COHORT)
    return jax.lax.fori_loop(0, num_draws, draw, jnp.zeros(COHORT, jnp.int32))


def aggregates(rule: Aggregator, num_reports: Array, state: PyTree, num_examples: Array) -> PyTree:
    """The rule's state after `num_reports` reports of cohorts with tiny updates, and the sum of the weights."""

    def report(i: Array, carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        state, total = carry
        client_ids = (i * COHORT + jnp.arange(COHORT)) % num_examples.shape[0]
        losses = jax.random.uniform(jax.random.fold_in(jax.random.key(0), i), (COHORT,))
        cohort_report = CohortReport(
            client_ids, num_examples[client_ids], losses, jnp.zeros((COHORT, 1)), jnp.ones(COHORT, bool)
        )
        aggregate, state = rule.aggregate(state, cohort_report, jax.random.key(0))
        return state, total + aggregate.weights

    return jax.lax.fori_loop(0, num_reports, report, (state, jnp.zeros(COHORT)))


def _repeated(fn: Callable[..., PyTree], *args: PyTree) -> tuple[Callable[[], float], int]:
    """A timed call of the compiled `fn(n, *args)`, and the n that takes `MIN_SECONDS`."""
    program = measure.compile_program(fn, jnp.int32(1), *args)
    count = 1
    for _ in range(3):  # the first call is slow, and the second may be too short
        seconds = measure.seconds_of(program, jnp.int32(count), *args) / count
        count = measure.repetitions(seconds, MIN_SECONDS, limit=100_000)
    return lambda: measure.seconds_of(program, jnp.int32(count), *args), count


if __name__ == "__main__":
    main()
