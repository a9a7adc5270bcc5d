"""A workload run by fedsim in the layout that `fedsim run` chooses: `rounds` rounds are one compiled call.

Prints one JSON line. `first_round_seconds` is compiling and the first round.
"""

import sys
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import exchange
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import workloads

from fedsim.engine import devices
from fedsim.engine.layout import RUNS
from fedsim.version import __version__


def main() -> None:
    """Checks or times fedsim on the workload in the folder."""
    parser = exchange.parser(__doc__)
    parser.add_argument("--width", type=int, help="clients in lockstep (default: fedsim's choice)")
    options = parser.parse_args()
    work = exchange.load(options.folder)
    devices.use_one_per_core()
    if options.check:
        jax.config.update("jax_default_matmul_precision", "highest")  # on accelerators
    workload = workloads.load(work.settings["workload"])
    layout = workload.layout()
    if options.width:
        layout = replace(layout, client_width=options.width)
    programs, place = workload.programs(layout, options.rounds)
    inputs = place(workloads.run_inputs(jax.random.key(0)[None], jnp.full(1, workload.learning_rate)), P(RUNS))
    shared = place(workload.shared(), P())

    started = time.perf_counter()
    states = jax.jit(programs.init)(shared, inputs)
    num_rounds = place(jnp.int32([1, options.rounds]), P())
    lowered = jax.jit(programs.chunk).lower(states, shared, inputs, num_rounds[0])
    compiled = lowered.compile(devices.compiler_options(jax.devices()[0]))
    after, _ = jax.block_until_ready(compiled(states, shared, inputs, num_rounds[0]))
    first = time.perf_counter() - started

    if options.check:
        leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(after.variables.params)]  # of the only run
        np.save(exchange.params_file(options.folder, "fedsim"), np.concatenate(leaves))
    call = lambda: jax.block_until_ready(compiled(states, shared, inputs, num_rounds[1]))
    seconds = [] if options.check else exchange.time_calls(call, options.rounds, options.calls)
    versions = {"fedsim": __version__} | {package: version(package) for package in ("jax", "jaxlib", "flax")}
    exchange.print_line("fedsim", first, seconds, versions)


if __name__ == "__main__":
    main()
