"""Profiles a round: the compiled operations of a workload's round, by their share of the time.

Traces one compiled call of a few rounds with `jax.profiler` and prints a Markdown table. An operation's seconds are the
sum of its executions, so with several cores or devices they add up to more than the duration of the call. Loops are
left out; their operations are counted.
"""

import argparse
import collections
import gzip
import json
import re
import tempfile
from pathlib import Path

import jax
import measure
import workloads

from fedsim.engine import devices
from fedsim.errors import FedsimError

OPERATION = re.compile(r"^\s*(?:ROOT )?%([\w.-]+) = (\(?\w+\[[\d,]*\])")


def main() -> None:
    """Parses the arguments, traces and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="?", choices=list(workloads.WORKLOADS), default="W1", help="(default W1)")
    parser.add_argument("--rounds", type=measure.positive, default=1, help="rounds of the call (default 1)")
    parser.add_argument("--top", type=measure.positive, default=15, help="operations to show (default 15)")
    options = parser.parse_args()
    devices.use_one_per_core()
    try:
        workload = workloads.load(options.workload)
    except FedsimError as error:
        parser.error(str(error))
    layout = workload.layout()
    simulation = workload.simulation(layout.client_width, layout.micro_batch, axis=layout.client_axis)
    rounds = measure.compile_rounds(simulation, workload.dataset.train, workload.learning_rate, options.rounds)
    rounds(options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            seconds, _ = rounds(options.rounds)
        (trace,) = Path(folder).glob("plugins/profile/*/*.trace.json.gz")
        with gzip.open(trace) as file:
            events = json.load(file)["traceEvents"]
    show(events, shapes(rounds.program.call.as_text()), seconds, options.top)


def shapes(program: str) -> dict[str, str]:
    """The shape of each operation's result by its name, from the text of a compiled program."""
    matches = (OPERATION.match(line) for line in program.splitlines())
    return {match[1]: match[2] for match in matches if match}


def show(events: list[dict], results: dict[str, str], seconds: float, top: int) -> None:
    """Prints the `top` operations of a trace's `events` whose names are in `results`."""
    total: collections.Counter[str] = collections.Counter()
    calls: collections.Counter[str] = collections.Counter()
    for event in events:
        name = event.get("name", "")
        if event.get("ph") == "X" and name in results and not name.startswith(("while", "call", "conditional")):
            total[name] += event["dur"] / 1e6
            calls[name] += 1
    total_seconds = sum(total.values())
    print(f"A call of {seconds:.2f} s under the profiler; {total_seconds:.2f} s in operations.\n")
    print("| operation | result | executions | seconds | share |\n| :--- | :--- | ---: | ---: | ---: |")
    for name, spent in total.most_common(top):
        print(f"| {name} | {results[name]} | {calls[name]} | {spent:.3f} | {spent / total_seconds:.0%} |")


if __name__ == "__main__":
    main()
