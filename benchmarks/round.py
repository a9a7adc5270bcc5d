"""Seconds a round of each workload, for several numbers of clients in lockstep and sizes of micro-batches.

Prints one JSON line for each workload, width and micro-batch. All programs of a workload run the same rounds,
interleaved, so that slow moments affect all alike. With `--rule arfl` each client's loss is computed before it trains,
as ARFL needs it; the difference to `fedavg` is its cost. `flops_per_second` counts products of real examples only, for
training and, with arfl, for the losses.

`--convolutions` compares other convolutions and pools with fedsim's on W1's client step instead.

Memory: `program_bytes` are one program's arguments, results and temporaries as the compiler reports them;
`process_peak_bytes_so_far` is the peak of the process until then, earlier lines included.
"""

import argparse

import convolutions
import jax
import measure
import workloads
from workloads import Workload

from fedsim.engine import devices
from fedsim.engine.layout import CLIENTS
from fedsim.errors import FedsimError

SHORT = ["W1", "W2", "W3", "W4", "W5"]
WIDTHS, CONVOLUTION_WIDTHS = [1, 2, 4, 8, 0], [1, 4, 0]  # 0: the whole cohort
LONG = ["cifar10", "femnist", "shakespeare"]


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
        type=measure.width,
        nargs="+",
        help='clients in lockstep; "K": the whole cohort (default 1 2 4 8 K; with --convolutions 1 4 K)',
    )
    measure.add_micro_batches(parser)
    parser.add_argument(
        "--devices",
        nargs="+",
        choices=["one", "all"],
        default=["one", "all"],
        help="one: a single device spreads each operation over the cores; all: a device for each core (default: both)",
    )
    parser.add_argument("--rule", choices=["fedavg", "arfl"], default="fedavg")
    parser.add_argument(
        "--rounds", type=measure.positive, help="rounds of a call (default: half a second of the fastest)"
    )
    parser.add_argument("--convolutions", action="store_true", help="compare convolutions on W1's client step")
    parser.add_argument(
        "--batches", type=measure.positive, nargs="+", default=[16, 64], help="with --convolutions: batch sizes"
    )
    options = parser.parse_args()
    devices.use_one_per_core()
    if options.convolutions:
        convolutions.compare(options.widths or CONVOLUTION_WIDTHS, options.batches, options.repeats, options.out)
        return
    for name in options.workloads:
        try:
            workload = workloads.load(name)
        except FedsimError as error:
            parser.error(f"{name}: {error}")
        measure_workload(workload, options)


def measure_workload(workload: Workload, options: argparse.Namespace) -> None:
    """Prints a line for each width and micro-batch."""
    engine = measure.engine_settings(workload, options.widths or WIDTHS, options.micro_batches)
    axes = [CLIENTS if which == "all" else None for which in options.devices]
    settings = [(*widths, axis) for widths in engine for axis in axes]
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
