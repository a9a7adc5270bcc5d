"""Seconds a round for several client widths, on workload W3.

W3 is 200 clients x 50 vectors of 64, K 20, E 1, B 10, MLP 64-32-10, plain SGD, no losses recorded.

Prints one JSON line a width: compile seconds, and median and minimum seconds a round of a chunk of rounds.
"""

import argparse
import json
import platform
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import fedsim
from fedsim.models import MLP

NUM_CLIENTS, EXAMPLES, FEATURES, COHORT, BATCH, CLASSES = 200, 50, 64, 20, 10, 10


def main() -> None:
    """Parses the arguments and measures each width."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 2, 4, 8, 20], help="clients in lockstep")
    parser.add_argument("--aggregator", choices=["fedavg", "arfl"], default="fedavg")
    parser.add_argument("--rounds", type=int, default=50, help="rounds of a measured call")
    parser.add_argument("--repeats", type=int, default=9, help="measured calls")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    y = rng.integers(CLASSES, size=NUM_CLIENTS * EXAMPLES)
    x = rng.normal(size=(len(y), FEATURES)).astype(np.float32) + np.eye(CLASSES, FEATURES, dtype=np.float32)[y]
    dataset = fedsim.from_arrays(x, y, np.arange(len(y)) // EXAMPLES, x[:100], y[:100])
    for width in options.widths:
        print(json.dumps(measure(dataset, width, options)), flush=True)


def measure(dataset: fedsim.FederatedDataset, width: int, options: argparse.Namespace) -> dict:
    """One measurement: compile time apart from steady time."""
    rules = {"fedavg": lambda h: fedsim.aggregators.fedavg(), "arfl": lambda h: fedsim.aggregators.arfl(h.lam)}
    simulation = fedsim.Simulation(
        task=fedsim.classification(MLP(CLASSES, (32,)), dataset.train.x[0]),
        aggregator=rules[options.aggregator],
        cohort_size=COHORT,
        batch_size=BATCH,
        max_count=dataset.max_count,
        client_width=width,
        record_losses=False,
    )
    data = jax.tree.map(jnp.asarray, dataset.train)
    hparams = fedsim.HParams(jnp.float32(0.1), jnp.float32(1.0))
    state = jax.jit(simulation.init)(jax.random.key(0), data, hparams)
    started = time.perf_counter()
    run = jax.jit(lambda s, d, h: simulation.run(s, d, h, options.rounds), donate_argnums=0)
    compiled = run.lower(state, data, hparams).compile()
    compile_seconds = time.perf_counter() - started
    state, _ = jax.block_until_ready(compiled(state, data, hparams))
    seconds = []
    for _ in range(options.repeats):
        started = time.perf_counter()
        state, _ = jax.block_until_ready(compiled(state, data, hparams))
        seconds.append((time.perf_counter() - started) / options.rounds)
    median = statistics.median(seconds)
    return {
        "workload": "W3",
        "aggregator": options.aggregator,
        "width": width,
        "compile_seconds": round(compile_seconds, 3),
        "median_seconds_per_round": round(median, 6),
        "minimum_seconds_per_round": round(min(seconds), 6),
        "samples_per_second": round(COHORT * EXAMPLES / median),
        "device": jax.devices()[0].device_kind,
        "versions": {"jax": jax.__version__, "python": platform.python_version()},
        "command": " ".join(["benchmarks/round.py", *sys.argv[1:]]),
    }


if __name__ == "__main__":
    main()
