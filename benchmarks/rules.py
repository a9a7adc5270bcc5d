"""Times 19 rules and four pre-aggregators of fedsim, beside the same ones of ByzFL and ByzPy.

K random updates of d parameters, of which f = (K - 3) // 4 may be corrupted (the most that Bulyan allows); radii are
sqrt(d). All clients count equally. First the results are compared: a difference of more than `TOLERANCE` of the length
is an error, except for rules that are random on either side (bucketing, power iterations of CAF and SMEA). Then calls
of fedsim and of the peers are timed, interleaved, with the same number of threads. A peer runs in a separate process.
It is stopped if one call takes longer than `--limit` or allocates more than `--memory`. Cases with more subsets than
fedsim allows are skipped. fedsim's f is data of the compiled program, as in a simulation, except where it determines
the subsets; its result includes the clients' weights.

Prints one JSON line for each rule, K and d. `ratio` is a peer's median over fedsim's. `--round` times a round of W3
with the trimmed mean under ALIE instead, interleaved with FedAvg.
"""

import argparse
import math
import shutil
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import measure
import numpy as np
import workloads
from rule_peer import Peer, PeerError

from fedsim import aggregators, attacks
from fedsim.core.types import Array, CohortReport
from fedsim.testing.reports import make_report

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from rules_peer import radius, random_updates

TOLERANCE = 1e-3  # of the length of a result; ByzFL's geometric median starts at another point
MAX_SUBSETS = 200_000
MIN_SECONDS = 0.05  # of the calls between two readings of the clock
NUM_THREADS = len(measure.cpus()) or 1
PEERS = ("byzfl", "byzpy")


class Case(NamedTuple):
    """A rule or a pre-aggregator."""

    make: Callable[[Any, int], Any]  # f, d -> Aggregator or PreAggregator
    is_rule: bool = True
    is_random: bool = False  # in fedsim or in the peer: results cannot be compared
    enumerates: bool = False  # subsets of K - f clients, with a static f
    peers: tuple[str, ...] = PEERS


CASES = {
    "fedavg": Case(lambda f, d: aggregators.fedavg(), peers=("byzfl",)),
    "median": Case(lambda f, d: aggregators.median(), peers=("byzfl",)),  # ByzPy takes the lower of the middle two
    "trimmed_mean": Case(lambda f, d: aggregators.trimmed_mean(num_byzantine=f)),
    "meamed": Case(lambda f, d: aggregators.meamed(num_byzantine=f), peers=("byzfl",)),
    "krum": Case(lambda f, d: aggregators.krum(num_byzantine=f, neighbors="n-f-1")),
    "multi_krum": Case(lambda f, d: aggregators.multi_krum(num_byzantine=f, neighbors="n-f-1")),
    "bulyan": Case(lambda f, d: aggregators.bulyan(num_byzantine=f), peers=()),
    "rfa": Case(lambda f, d: aggregators.rfa(), peers=("byzfl",)),
    "dnc": Case(lambda f, d: aggregators.dnc(num_byzantine=f), peers=()),
    "cfl": Case(lambda f, d: aggregators.cfl(), peers=()),
    "centered_clipping": Case(lambda f, d: aggregators.centered_clipping(tau=radius(d))),
    "norm_clipping": Case(lambda f, d: aggregators.norm_clipping(threshold=radius(d)), peers=()),
    "caf": Case(lambda f, d: aggregators.caf(num_byzantine=f), is_random=True),
    "mda": Case(lambda f, d: aggregators.mda(num_byzantine=f), enumerates=True),
    "smea": Case(lambda f, d: aggregators.smea(num_byzantine=f), is_random=True, enumerates=True),
    "autogm": Case(lambda f, d: aggregators.autogm(), peers=()),
    "signguard": Case(lambda f, d: aggregators.signguard(), peers=()),
    "foolsgold": Case(lambda f, d: aggregators.foolsgold(), peers=()),
    "flame": Case(lambda f, d: aggregators.flame(), peers=()),
    "nnm": Case(lambda f, d: aggregators.nnm(num_byzantine=f), is_rule=False),
    "bucketing": Case(lambda f, d: aggregators.bucketing(size=2), is_rule=False, is_random=True),
    "clipping": Case(lambda f, d: aggregators.clipping(threshold=radius(d)), is_rule=False),
    "arc": Case(lambda f, d: aggregators.arc(num_byzantine=f), is_rule=False),
}


def _python(text: str) -> str:
    if shutil.which(text) is None:
        raise argparse.ArgumentTypeError(f"must be a program, got {text!r}")
    return text


def main() -> int:
    """Parses the arguments and measures each rule at each size; 1 if a result differs."""
    parser = measure.parser(__doc__, repeats=5)
    parser.add_argument("--rules", nargs="+", choices=CASES, default=list(CASES), metavar="RULE", help=", ".join(CASES))
    parser.add_argument("--clients", type=measure.at_least(1), nargs="+", default=[20, 64, 256], help="K (20 64 256)")
    parser.add_argument(
        "--sizes", type=measure.at_least(1), nargs="+", default=[100_000, 1_000_000], help="d (1e5 1e6)"
    )
    parser.add_argument(
        "--peers", nargs="*", choices=PEERS, default=list(PEERS), help="default: all that are installed"
    )
    parser.add_argument(
        "--python", type=_python, default=sys.executable, help="the Python with the peers (default: this one)"
    )
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of one call of a peer (default %(default)s)")
    parser.add_argument("--memory", type=int, default=8, help="GiB for a peer (default %(default)s)")
    parser.add_argument("--round", action="store_true", help="time a round of W3 instead")
    options = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    warnings.filterwarnings("ignore", "Some donated buffers were not usable")  # a result of another shape
    if options.round:
        measure_rounds(options)
        return 0
    peer = Peer(options.python, NUM_THREADS, options.memory, options.limit)
    num_different = 0
    for size in options.sizes:
        for num_clients in options.clients:
            rows = jnp.asarray(random_updates(num_clients, size))
            peer.data(num_clients, size)
            for name in options.rules:
                num_different += measure_rule(name, rows, peer, options)
    return int(num_different > 0)


def measure_rule(name: str, rows: Array, peer: Peer, options: argparse.Namespace) -> int:
    """Prints a line; returns the number of peers whose results differ."""
    (num_clients, size), f, case = rows.shape, (rows.shape[0] - 3) // 4, CASES[name]
    if case.enumerates and math.comb(num_clients, f) > MAX_SUBSETS:
        return 0
    call = partial(apply_rule, name, size, *([f] if case.enumerates else []))
    args = [make_report(rows)] if case.enumerates else [jnp.int32(f), make_report(rows)]
    # A pre-aggregator may overwrite the updates, here and in the peers.
    program = measure.compile_program(call, *args, donate=None if case.is_rule else len(args) - 1)

    given = lambda: args if case.is_rule else jax.block_until_ready([*args[:-1], jax.tree.map(jnp.copy, args[-1])])
    time_fedsim = lambda number: sum(measure.seconds_of(program, *given()) for _ in range(number)) / number
    result = np.asarray(program.call(*given())[0])
    calls = {"fedsim": partial(time_fedsim, measure.repetitions(time_fedsim(1), MIN_SECONDS))}
    peers: dict[str, dict[str, Any]] = {}
    for library in options.peers:
        if library in case.peers and library in peer.versions:
            peers[library], number = call_first(peer, library, name, f, result)
            if number:
                calls[library] = partial(peer.time, library, number)
    timings = dict(zip(calls, measure.time_interleaved(list(calls.values()), options.repeats), strict=True))
    median = statistics.median(timings["fedsim"])
    for library, seconds in timings.items():
        if library != "fedsim":
            peers[library] |= {"median_seconds": statistics.median(seconds), "minimum_seconds": min(seconds)}
    for line in peers.values():
        if of_call := line.get("median_seconds", line.get("more_than_seconds")):
            line["ratio"] = of_call / median
    measure.line(
        options.out,
        benchmark="rules",
        rule=name,
        clients=num_clients,
        size=size,
        num_byzantine=f,
        threads=NUM_THREADS,
        **measure.speed(program, timings["fedsim"], 1, unit="call"),
        program_bytes=program.program_bytes,
        peers=peers,
        peer_versions=peer.versions,
    )
    return sum(line.get("differs", False) for line in peers.values())


def apply_rule(name: str, size: int, f: Array | int, report: CohortReport) -> tuple[Array, Array]:
    """The aggregate [d] and the weights of a rule, or the updates [K', d] and `valid` of a pre-aggregator."""
    rule, key = CASES[name].make(f, size), jax.random.key(0)
    if not CASES[name].is_rule:
        result = rule(report, key)
        return result.updates.params, result.valid
    state = rule.init(jax.tree.map(lambda u: u[0], report.updates), report.num_examples, report.losses)
    aggregate, _ = rule.aggregate(state, report, key)
    return aggregate.update.params, aggregate.weights


def call_first(peer: Peer, library: str, name: str, f: int, expected: np.ndarray) -> tuple[dict[str, Any], int]:
    """Compares a peer's first result; returns the comparison and the number of calls to time, 0 after an error."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.npy"
        try:
            seconds = peer.use(library, name, f, file)
        except TimeoutError:
            return {"more_than_seconds": peer.limit}, 0
        except PeerError as error:
            return {"error": str(error)}, 0
        result = np.load(file)
    comparison: dict[str, Any] = {}
    if not CASES[name].is_random:
        comparison["difference"] = float(np.linalg.norm(expected - result) / np.linalg.norm(result))
        if comparison["difference"] > TOLERANCE:
            return comparison | {"differs": True}, 0
    return comparison, measure.repetitions(seconds, MIN_SECONDS)


def measure_rounds(options: argparse.Namespace) -> None:
    """Prints a line: rounds of W3 with FedAvg, and with the trimmed mean under ALIE, interleaved."""
    workload = workloads.load("W3")
    train = workload.dataset.train
    corrupted = np.arange(len(train.num_examples)) % 5 == 0
    data = jax.tree.map(jnp.asarray, train._replace(corrupted=corrupted))
    trimmed_mean = lambda hparams: aggregators.trimmed_mean()
    simulations = {
        "fedavg": workload.simulation(),
        "trimmed_mean": workload.simulation(rule=trimmed_mean),
        "trimmed_mean, alie": workload.simulation(rule=trimmed_mean, attack=attacks.alie()),
    }
    compiled = [measure.compile_rounds(simulation, data, workload.learning_rate) for simulation in simulations.values()]
    programs, calls = zip(*compiled, strict=True)
    number = measure.enough_rounds(calls)
    timings = measure.time_interleaved([lambda call=call: call(number)[0] for call in calls], options.repeats)
    fedavg = statistics.median(timings[0])
    for name, program, seconds in zip(simulations, programs, timings, strict=True):
        measure.line(
            options.out,
            benchmark="rules_round",
            workload=workload.name,
            rule=name,
            threads=NUM_THREADS,
            **measure.speed(program, seconds, number),
            ratio_to_fedavg=statistics.median(seconds) / fedavg,
        )


if __name__ == "__main__":
    sys.exit(main())
