"""Times rounds of a workload, and runs of a sweep in lockstep, with the memory that was forecast and used."""

import statistics
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import measure
import workloads

import fedsim
from accelerator_parts import FORMS
from fedsim import aggregators, attacks
from fedsim.core.branches import Branch, MethodFamily
from fedsim.core.chain import chain
from fedsim.core.rewriting import for_backend
from fedsim.core.rule_trace import RuleTrace
from fedsim.engine import memory
from fedsim.engine.programs import RunFunctions

REPEATS = 5
SWEEP_REPEATS = 3
FAMILY_RUNS = 4
FAMILY = (
    (aggregators.fedavg, attacks.sign_flip),
    (aggregators.trimmed_mean, attacks.alie),
    (aggregators.rfa, attacks.min_max),
    (aggregators.multi_krum, attacks.optimal_ipm),
)


def time_rounds(name: str, layers: str, precision: str, width: int, tiny: bool) -> dict[str, Any]:
    """Times rounds with `width` clients in lockstep (0: the whole cohort)."""
    workload = workloads.load(name, tiny)
    task = fedsim.classification(workload.module, workload.dataset.train.x[0], dtype=jnp.dtype(precision))
    simulation = workload.simulation(width, task=for_backend(task, FORMS[layers]))
    num_rounds, repeats = (2, 1) if tiny else (None, REPEATS)
    (line,) = measure.time_rounds(workload, [simulation], num_rounds, repeats)
    return line | _measured_memory()


def time_sweep(name: str, num_runs: int, num_rounds: int, in_lockstep: bool, tiny: bool) -> dict[str, Any]:
    """Times runs that differ in key and learning rate: in fedsim's layout, or one after another in one program.

    `forecast_bytes` is the bound by which `fedsim run` chooses widths on a CPU, `program_bytes` what the compiler
    reports, `device_peak_bytes` what the device has had in use.
    """
    workload = workloads.load(name, tiny)
    layout = workload.layout(num_runs if in_lockstep else 1)
    rates = workload.learning_rate * (1 + jnp.arange(num_runs) % 4) / 4
    inputs = workloads.run_inputs(jax.random.split(jax.random.key(0), num_runs), rates)
    program, seconds = measure.compile_sweep(workload, layout, inputs, num_rounds)
    seconds()
    (timing,) = measure.time_interleaved([seconds], 1 if tiny else SWEEP_REPEATS)
    step_bytes = memory.step_bytes(workload.simulation().task, workload.dataset, workload.batch_size)
    return {
        **measure.speed(program, timing, num_runs * num_rounds),
        "runs_in_lockstep": layout.run_width,
        "clients_in_lockstep": layout.client_width,
        "runs_per_hour": 3600 * num_runs / statistics.median(timing),
        "forecast_bytes": layout.num_models * step_bytes + memory.tree_bytes((inputs, workload.shared())),
        "program_bytes": program.program_bytes,
        **_measured_memory(),
    }


def time_family(name: str, tiny: bool) -> dict[str, Any]:
    """Times rounds of pairs of a rule and an attack, each in a program of its own and in one program for all.

    A GPU may read the index of a conditional on the host in every round; `slowdown` shows what that costs.
    """
    workload, num_rounds = workloads.load(name, tiny), 5 if tiny else 50
    keys, rates = jax.random.split(jax.random.key(0), FAMILY_RUNS), jnp.full(FAMILY_RUNS, workload.learning_rate)
    inputs, shared = workloads.run_inputs(keys, rates), workload.shared()
    simulation = workload.simulation()
    family = MethodFamily(
        base=simulation.method,
        servers=[lambda hparams, rule=rule: chain(rule()) for rule, _ in FAMILY],
        traces=[RuleTrace((), {}, uses_losses=False, trains_on_root=False)] * len(FAMILY),
        attacks=[lambda hparams, attack=attack: attack() for _, attack in FAMILY],
    )
    first = shared._replace(branch=Branch(jnp.int32(0), jnp.int32(0)))
    together = measure.compile_runs(RunFunctions(replace(simulation, method=family), num_rounds), inputs, first)
    result: dict[str, Any] = {"family_seconds": together.trace_seconds + together.compile_seconds, "pairs": {}}
    for position, (rule, attack) in enumerate(FAMILY):
        make_rule = lambda hparams, rule=rule: rule()
        functions = RunFunctions(workload.simulation(rule=make_rule, attack=attack()), num_rounds)
        alone = measure.compile_runs(functions, inputs, shared)
        branched = shared._replace(branch=Branch(jnp.int32(position), jnp.int32(position)))
        calls = [(alone, inputs, shared), (together, inputs, branched)]
        timings = measure.time_interleaved([partial(measure.seconds_of, *call) for call in calls], 2 if tiny else 5)
        seconds_alone, seconds_together = map(statistics.median, timings)
        result["pairs"][f"{rule.__name__}, {attack.__name__}"] = {
            "compile_seconds": alone.trace_seconds + alone.compile_seconds,
            "round_seconds": seconds_alone / num_rounds,
            "slowdown": seconds_together / seconds_alone,
        }
    return result


def _measured_memory() -> dict[str, int | None]:
    """Peak memory of the device in this process, which runs a single measurement; None on a CPU."""
    stats = jax.devices()[0].memory_stats() or {}
    return {"device_peak_bytes": stats.get("peak_bytes_in_use"), "device_bytes": stats.get("bytes_limit")}
