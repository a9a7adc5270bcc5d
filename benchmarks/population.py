"""Seconds a round and memory for 100 to 1,000,000 clients of which 20 train.

Every client has 10 examples of 8 floats. There are 1,000 examples only, which clients share (offsets may point
anywhere), so that memory shows what is kept for each client. MLP 8-16-4, K 20, B 10, one epoch.

Prints one JSON line for each number of clients and rule. Of a round's seconds, `draw` are those of drawing the cohort
(a uniform for each client and the K largest) and `aggregate` those of the rule alone, which for ARFL sorts all
clients' losses; both are measured apart, in loops of their own, in turn with the rounds. `rest` is the difference: what
should not grow. `init_seconds` is one call: ARFL asks all clients for their loss once.
"""

import argparse
from collections.abc import Callable

import jax
import jax.numpy as jnp
import measure
import numpy as np
from workloads import RULES, hparams, vectors

import fedsim
from fedsim.core.types import Aggregator, Array, ClientData, CohortReport, PyTree
from fedsim.core.waves import sample_cohort
from fedsim.models import MLP

EXAMPLES, FEATURES, CLASSES, COHORT, OWNERS = 10, 8, 4, 20, 100
AT_LEAST = 0.3  # seconds a measured call


def main() -> None:
    """Parses the arguments and measures each number of clients with each rule."""
    parser = measure.parser(__doc__, repeats=5)
    parser.add_argument(
        "--clients",
        type=measure.positive,
        nargs="+",
        default=[100, 1000, 10_000, 100_000, 1_000_000],
        help=f"N, at least {COHORT} (default 100 to 1,000,000)",
    )
    parser.add_argument("--rules", nargs="+", choices=list(RULES), default=list(RULES), help="default: both")
    options = parser.parse_args()
    if min(options.clients) < COHORT:
        parser.error(f"--clients: a cohort has {COHORT}")
    for num_clients in sorted(options.clients):
        data = population(num_clients)
        for rule in options.rules:
            measure_rule(rule, data, options)


def population(num_clients: int) -> ClientData:
    """Clients whose offsets point into the same 1,000 examples."""
    train = vectors(OWNERS, EXAMPLES, FEATURES, CLASSES).train
    owners = np.arange(num_clients) % OWNERS
    shared = ClientData(train.x, train.y, train.offsets[owners], train.counts[owners], np.zeros(num_clients, bool))
    return jax.tree.map(jnp.asarray, shared)


def measure_rule(rule: str, data: ClientData, options: argparse.Namespace) -> None:
    """Times rounds, draws and the rule alone, in turn, and prints a line."""
    simulation = fedsim.Simulation(
        task=fedsim.classification(MLP(CLASSES, (16,)), data.x[0]),
        aggregator=RULES[rule],
        cohort_size=COHORT,
        batch_size=EXAMPLES,
        max_count=EXAMPLES,
        client_width=COHORT,
        record_losses=rule == "arfl",
    )
    numbers = hparams(0.1)
    init = measure.compile_program(simulation.init, jax.random.key(0), data, numbers)
    init_seconds = measure.seconds_of(init, jax.random.key(0), data, numbers)
    rounds = measure.compile_rounds(simulation, data, 0.1)
    num_rounds = measure.enough_rounds([rounds], AT_LEAST)

    draw, num_draws = _repeated(draws, data)
    aggregate, num_aggregates = _repeated(
        lambda n, state, counts: aggregates(RULES[rule](numbers), n, state, counts),
        rounds.state.aggregator,
        data.counts,
    )
    calls = [lambda: rounds(num_rounds)[0], draw, aggregate]
    of_rounds, of_draws, of_aggregates = measure.time_in_turn(calls, options.repeats)
    seconds = of_rounds.median / num_rounds
    draw_seconds, aggregate_seconds = of_draws.median / num_draws, of_aggregates.median / num_aggregates
    measure.line(
        options.out,
        benchmark="population",
        rule=rule,
        clients=data.counts.shape[0],
        cohort_size=COHORT,
        **measure.speed(rounds.program, of_rounds, num_rounds),
        draw_seconds=draw_seconds,
        aggregate_seconds=aggregate_seconds,
        rest_seconds=seconds - draw_seconds - aggregate_seconds,
        init_seconds=init_seconds,
        samples_per_second=COHORT * EXAMPLES / seconds,
        init_bytes=init.program_bytes,
        **measure.memory(rounds.program),
    )


def draws(num_draws: Array, data: ClientData) -> Array:
    """`num_draws` cohorts, one after another; their sum, so that none is left out."""
    key = jax.random.key(0)
    draw = lambda i, total: total + sample_cohort(jax.random.fold_in(key, i), data, COHORT).client_id
    return jax.lax.fori_loop(0, num_draws, draw, jnp.zeros(COHORT, jnp.int32))


def aggregates(rule: Aggregator, num_reports: Array, state: PyTree, counts: Array) -> PyTree:
    """The rule's state after `num_reports` reports of cohorts with tiny updates, and the sum of the weights given."""

    def report(i: Array, carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        state, total = carry
        client_ids = (i * COHORT + jnp.arange(COHORT)) % counts.shape[0]
        losses = jax.random.uniform(jax.random.fold_in(jax.random.key(0), i), (COHORT,))
        sent = CohortReport(client_ids, counts[client_ids], losses, jnp.zeros((COHORT, 1)), jnp.ones(COHORT, bool))
        aggregate, state = rule.aggregate(state, sent, jax.random.key(0))
        return state, total + aggregate.weights

    return jax.lax.fori_loop(0, num_reports, report, (state, jnp.zeros(COHORT)))


def _repeated(fn: Callable[..., PyTree], *args: PyTree) -> tuple[Callable[[], float], int]:
    """A call of `fn(n, *args)`, compiled, with an n that fills the time; and that n."""
    program = measure.compile_program(fn, jnp.int32(1), *args)
    pieces = 1
    for _ in range(3):  # the first call is slow, and one piece may be shorter than a call
        seconds = measure.seconds_of(program, jnp.int32(pieces), *args) / pieces
        pieces = measure.repetitions(seconds, AT_LEAST, most=100_000)
    return lambda: measure.seconds_of(program, jnp.int32(pieces), *args), pieces


if __name__ == "__main__":
    main()
