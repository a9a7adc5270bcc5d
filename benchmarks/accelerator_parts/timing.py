"""Times rounds of a workload, and runs of a sweep in lockstep, with the memory that was forecast and used."""

from typing import Any

import jax
import jax.numpy as jnp
import measure
import workloads
from jax.sharding import PartitionSpec as P

from accelerator_parts import sizes
from fedsim.core.types import PyTree
from fedsim.engine import memory
from fedsim.engine.inputs import RunInputs, SharedInputs
from fedsim.engine.layout import RUNS

REPEATS = 5
SWEEP_REPEATS = 3


def time_rounds(name: str, layers: str, precision: str, width: int, tiny: bool) -> dict[str, Any]:
    """Times rounds with `width` clients in lockstep (0: the whole cohort)."""
    workload = sizes.load(name, tiny)
    simulation = workload.simulation(width, task=sizes.make_task(workload, layers, precision))
    num_rounds, repeats = (2, 1) if tiny else (None, REPEATS)
    (line,) = measure.time_rounds(workload, [simulation], num_rounds, repeats)
    return line | _measured_memory()


def time_sweep(name: str, num_runs: int, num_rounds: int, in_lockstep: bool, tiny: bool) -> dict[str, Any]:
    """Times runs that differ in key and learning rate: in fedsim's layout, or one after another in one program.

    `forecast_bytes` is what `fedsim run` bounds a layout with before it compiles, `program_bytes` what the compiler
    reports, `device_peak_bytes` what the device has had in use.
    """
    workload = sizes.load(name, tiny)
    layout = workload.layout(num_runs if in_lockstep else 1)
    functions, place = workload.programs(layout, num_rounds)
    rates = workload.learning_rate * (1 + jnp.arange(num_runs) % 4) / 4
    inputs = place(workloads.run_inputs(jax.random.split(jax.random.key(0), num_runs), rates), P(RUNS))
    shared = place(workload.shared(), P())

    def train(inputs: RunInputs, shared: SharedInputs) -> PyTree:
        states, _ = functions.chunk(functions.init(shared, inputs), shared, inputs, jnp.int32(num_rounds))
        return states.variables.params

    program = measure.compile_program(train, inputs, shared)
    measure.seconds_of(program, inputs, shared)
    (timing,) = measure.time_interleaved(
        [lambda: measure.seconds_of(program, inputs, shared)], 1 if tiny else SWEEP_REPEATS
    )
    step_bytes = memory.step_bytes(workload.simulation().task, workload.dataset, workload.batch_size)
    return {
        **measure.speed(program, timing, num_runs * num_rounds),
        "runs_in_lockstep": layout.run_width,
        "clients_in_lockstep": layout.client_width,
        "runs_per_hour": 3600 * num_runs / timing.median,
        "forecast_bytes": layout.num_models * step_bytes + memory.tree_bytes((inputs, shared)),
        "program_bytes": program.program_bytes,
        **_measured_memory(),
    }


def _measured_memory() -> dict[str, int | None]:
    """Peak memory of the device in this process, which runs a single measurement; None on a CPU."""
    stats = jax.devices()[0].memory_stats() or {}
    return {"device_peak_bytes": stats.get("peak_bytes_in_use"), "device_bytes": stats.get("bytes_limit")}
