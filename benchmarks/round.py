"""Seconds a round of each workload, for several numbers of clients in lockstep and sizes of micro-batches.

Prints one JSON line for each workload, width and micro-batch. All programs of a workload run the same rounds,
interleaved, so that slow moments affect all alike. With `--rule arfl` each client's loss is computed before it trains,
as ARFL needs it; the difference to `fedavg` is its cost. `flops_per_second` counts products of real examples only, for
training and, with arfl, for the losses.

Memory: `program_bytes` are one program's arguments, results and temporaries as the compiler reports them;
`process_peak_bytes_so_far` is the peak of the process until then, earlier lines included.
"""

import argparse
from itertools import product

import jax
import measure
import workloads
from workloads import Workload

from fedsim.engine import devices
from fedsim.engine.layout import CLIENTS

SHORT = ["W1", "W2", "W3", "W4", "W5"]
LONG = ["cifar10", "femnist", "shakespeare"]


def _width(text: str) -> int:
    return 0 if text == "K" else measure.at_least(1)(text)


def main() -> None:
    """Parses the arguments and measures each workload."""
    parser = measure.parser(__doc__, repeats=3)
    parser.add_argument(
        "--workloads",
        nargs="+",
        choices=SHORT + LONG,
        default=SHORT,
        metavar="NAME",
        help=f"{', '.join(SHORT)} (default: these), or the paper's, which take long: {', '.join(LONG)}",
    )
    parser.add_argument(
        "--widths",
        type=_width,
        nargs="+",
        default=[1, 2, 4, 8, 0],
        help='clients in lockstep; "K": the whole cohort (default 1 2 4 8 K)',
    )
    parser.add_argument(
        "--micro-batches",
        type=measure.at_least(0),
        nargs="+",
        default=[0, 8],
        help="examples at a time; 0, or at least the batch size: the whole batch (default 0 8)",
    )
    parser.add_argument(
        "--devices",
        nargs="+",
        choices=["one", "all"],
        default=["one", "all"],
        help="one: a single device spreads each operation over the cores; all: a device for each core (default: both)",
    )
    parser.add_argument("--rule", choices=["fedavg", "arfl"], default="fedavg")
    parser.add_argument(
        "--rounds", type=measure.at_least(1), help="rounds of a call (default: half a second of the fastest)"
    )
    options = parser.parse_args()
    devices.use_one_per_core()
    for workload in workloads.load_all(options.workloads).values():
        measure_workload(workload, options)


def measure_workload(workload: Workload, options: argparse.Namespace) -> None:
    """Prints a line for each width and micro-batch."""
    clients = dict.fromkeys(min(width, workload.cohort_size) or workload.cohort_size for width in options.widths)
    examples = dict.fromkeys(size if size < workload.batch_size else 0 for size in options.micro_batches)
    axes = [CLIENTS if which == "all" else None for which in options.devices]
    settings = list(product(clients, examples, axes))
    rule = workloads.RULES[options.rule]
    simulations = [
        workload.simulation(width, micro_batch, rule, record_losses=options.rule == "arfl", axis=axis)
        for width, micro_batch, axis in settings
    ]
    timed = measure.time_rounds(workload, simulations, options.rounds, options.repeats)
    for (width, micro_batch, axis), timing in zip(settings, timed, strict=True):
        measure.line(
            options.out,
            benchmark="round",
            workload=workload.name,
            rule=options.rule,
            width=width,
            micro_batch=micro_batch,
            client_devices=1 if axis is None else jax.device_count(),
            cohort_size=workload.cohort_size,
            batch_size=workload.batch_size,
            epochs=workload.epochs,
            **timing,
        )


if __name__ == "__main__":
    main()
