"""The useful share of the example slots that clients of different sizes train in lockstep, and seconds a round.

A client's slot in a step is computed whether it holds an example or not. A wave of w clients makes as many steps of B
slots as its largest client needs; with micro-batches of b examples, as many steps of b. The share is the examples of
the cohorts of `--cohorts` rounds over the slots in which they are trained. Cohorts are sorted by size, as fedsim does.
Width K is one `vmap` over the whole cohort.

Prints one JSON line for each set of clients, width and micro-batch. Sets: W4 and W5 of `workloads.py`, which are timed
as well; and, for their sizes alone, `shakespeare_71` (the paper's protocol: 71 roles drawn, 80 % of their examples) and
`shakespeare_all` (all roles that are long enough to be split so). Needs the prepared FEMNIST and Shakespeare (`fedsim
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
from fedsim.engine import build
from fedsim.engine.layout import num_slots
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
        "--rounds", type=measure.positive, default=2, help="rounds of a measured call (default %(default)s)"
    )
    parser.add_argument("--no-training", action="store_true", help="the shares only; nothing is timed")
    options = parser.parse_args()
    for name in options.sets:
        try:
            workload = SETS[name]()
        except FedsimError as error:
            parser.error(f"{name}: {error}")
        measure_set(workload, name in TRAINED and not options.no_training, options)


def measure_set(workload: Workload, is_timed: bool, options: argparse.Namespace) -> None:
    """Prints the shares of one set of clients for each width and micro-batch, and times its rounds if asked."""
    cohorts = cohort_sizes(workload.dataset.train, workload.cohort_size, options.cohorts)
    counts = workload.dataset.train.counts
    settings = measure.engine_settings(workload, options.widths, options.micro_batches)
    timed: list[dict] = [{}] * len(settings)
    if is_timed:
        simulations = [workload.simulation(*setting) for setting in settings]
        timed = measure.time_rounds(workload, simulations, options.rounds, options.repeats)
    for (width, micro_batch), found in zip(settings, timed, strict=True):
        slots = num_slots(cohorts, width, workload.batch_size, micro_batch)
        measure.line(
            options.out,
            benchmark="ragged",
            workload=workload.name,
            clients=len(counts),
            smallest=int(counts.min()),
            median=float(np.median(counts)),
            largest=int(counts.max()),
            cohort_size=workload.cohort_size,
            batch_size=workload.batch_size,
            width=width,
            micro_batch=micro_batch,
            cohorts=options.cohorts,
            useful_share=float(cohorts.sum() / slots.sum()),
            slots_a_round=float(slots.mean()),
            **found,
        )


def cohort_sizes(data: ClientData, cohort_size: int, num_cohorts: int) -> np.ndarray:
    """The numbers of examples [num_cohorts, K] of cohorts that fedsim draws, largest first."""
    counts = jnp.asarray(data.counts)
    sizes_alone = ClientData(counts, counts, jnp.asarray(data.offsets), counts, counts > 0)  # no need for the examples
    draw = lambda key: sample_cohort(key, sizes_alone, cohort_size).num_examples
    return np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), num_cohorts)))


def _shakespeare(sample_clients: int | None) -> FederatedDataset:
    config = DataConfig(name="shakespeare", partition="natural", sample_clients=sample_clients, test_fraction=0.2)
    return build.dataset(Config(data=config))


def _of_size(name: str, dataset: FederatedDataset) -> Workload:
    return replace(workloads.load("W5"), name=name, dataset=dataset)


TRAINED = ("W4", "W5")
SETS: dict[str, Callable[[], Workload]] = {
    "W4": lambda: workloads.load("W4"),
    "W5": lambda: workloads.load("W5"),
    "shakespeare_71": lambda: _of_size("shakespeare_71", _shakespeare(71)),
    "shakespeare_all": lambda: _of_size("shakespeare_all", _shakespeare(None)),
}


if __name__ == "__main__":
    main()
