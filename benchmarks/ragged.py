"""The useful share of the example slots when clients of different sizes train in lockstep, and seconds a round.

A client's slot in a step is computed whether it holds an example or not. A wave of w clients makes as many steps of B
slots as its largest client needs; with micro-batches of b examples, as many steps of b. The share is the number of
examples in the cohorts of `--cohorts` rounds over the number of slots. Cohorts are sorted by size, as in fedsim. Width
K is one `vmap` over the whole cohort.

Prints one JSON line for each set of clients, width and micro-batch. Sets: W4 and W5 of `workloads.py`, which are also
timed; and, for their sizes only, `shakespeare_71` (the paper's protocol: 71 random roles, 80 % of their examples) and
`shakespeare_all` (all roles that are long enough for this split). Needs the prepared FEMNIST and Shakespeare (`fedsim
data prepare`).
"""

import argparse
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import measure
import numpy as np
import workloads
from workloads import Workload

from fedsim.config.schema import Config, DataConfig
from fedsim.core.types import ClientData, FederatedDataset
from fedsim.core.waves import sample_cohort
from fedsim.engine.dataset import load_dataset
from fedsim.engine.slots import num_slots
from fedsim.errors import FedsimError


def main() -> None:
    """Parses the arguments and measures each set of clients."""
    parser = measure.parser(__doc__, repeats=3)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), help="default: all")
    parser.add_argument(
        "--widths", type=measure.width, nargs="+", default=[1, 2, 4, 8, 0], help='clients in lockstep; "K": all'
    )
    measure.add_micro_batches(parser)
    parser.add_argument(
        "--cohorts", type=measure.positive, default=1000, help="rounds whose cohorts are counted (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=measure.positive, default=2, help="rounds of a timed call (default %(default)s)"
    )
    parser.add_argument("--no-training", action="store_true", help="only the shares, without timing")
    options = parser.parse_args()
    for name in options.sets:
        try:
            workload = SETS[name]()
        except FedsimError as error:
            parser.error(f"{name}: {error}")
        measure_set(workload, name in TRAINED and not options.no_training, options)


def measure_set(workload: Workload, is_timed: bool, options: argparse.Namespace) -> None:
    """Prints the share of one set of clients for each width and micro-batch, with times if `is_timed`."""
    cohorts = cohort_sizes(workload.dataset.train, workload.cohort_size, options.cohorts)
    num_examples = workload.dataset.train.num_examples
    settings = measure.engine_settings(workload, options.widths, options.micro_batches)
    timings: list[dict] = [{}] * len(settings)
    if is_timed:
        simulations = [workload.simulation(*setting) for setting in settings]
        timings = measure.time_rounds(workload, simulations, options.rounds, options.repeats)
    for (width, micro_batch), timing in zip(settings, timings, strict=True):
        slots = num_slots(cohorts, width, workload.batch_size, micro_batch)
        measure.line(
            options.out,
            benchmark="ragged",
            workload=workload.name,
            clients=len(num_examples),
            smallest=int(num_examples.min()),
            median=float(np.median(num_examples)),
            largest=int(num_examples.max()),
            cohort_size=workload.cohort_size,
            batch_size=workload.batch_size,
            width=width,
            micro_batch=micro_batch,
            cohorts=options.cohorts,
            useful_share=float(cohorts.sum() / slots.sum()),
            slots_a_round=float(slots.mean()),
            **timing,
        )


def cohort_sizes(data: ClientData, cohort_size: int, num_cohorts: int) -> np.ndarray:
    """The numbers of examples [num_cohorts, K] of cohorts that fedsim draws, largest first."""
    num_examples = jnp.asarray(data.num_examples)
    draw = lambda key: num_examples[sample_cohort(key, num_examples, cohort_size)]
    sizes = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), num_cohorts)))
    return -np.sort(-sizes)


def _shakespeare(sample_clients: int | None) -> FederatedDataset:
    config = DataConfig(name="shakespeare", partition="natural", sample_clients=sample_clients, test_fraction=0.2)
    return load_dataset(Config(data=config))


def _make_w5(name: str, dataset: FederatedDataset) -> Workload:
    return replace(workloads.load("W5"), name=name, dataset=dataset)


TRAINED = ("W4", "W5")
SETS: dict[str, Callable[[], Workload]] = {
    "W4": lambda: workloads.load("W4"),
    "W5": lambda: workloads.load("W5"),
    "shakespeare_71": lambda: _make_w5("shakespeare_71", _shakespeare(71)),
    "shakespeare_all": lambda: _make_w5("shakespeare_all", _shakespeare(None)),
}


if __name__ == "__main__":
    main()
