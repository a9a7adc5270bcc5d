"""Layouts that fit into the memory of the devices, as the compiler reports it."""

from collections.abc import Sequence
from dataclasses import replace

import jax

from fedsim.engine import build, devices, factories, memory
from fedsim.engine.compiling import peak_memory
from fedsim.engine.families import Family, Group, make_family
from fedsim.engine.group_inputs import Inputs
from fedsim.engine.layout import Layout, widest_fitting
from fedsim.engine.plan import Plan
from fedsim.engine.streamed.inputs import make_inputs
from fedsim.errors import ConfigError


def fit_layouts(plan: Plan) -> Plan:
    """On accelerators, narrows the layout of each family to the widest that fits into memory, as the compiler reports.

    Widths that the configuration gives stay as they are.
    """
    if plan.machine.backend == "cpu":
        return plan
    layouts = {family: fit_layout(plan, family)[0] for family in dict.fromkeys(plan.families)}
    groups = [replace(group, layout=layouts[family]) for group, family in zip(plan.groups, plan.families, strict=True)]
    return replace(plan, groups=groups)


def fit_layout(plan: Plan, family: Family, targets: Sequence[jax.Device] | None = None) -> tuple[Layout, int | None]:
    """The widest layout of `family` that fits into memory, and the bytes that it needs there, data included.

    The compiler reports these bytes, for the first of `targets` (default: JAX's); None if it runs out of memory itself.
    If no layout fits, it is the narrowest.
    """
    groups = [group for group, other in zip(plan.groups, plan.families, strict=True) if other is family]
    group = max(groups, key=lambda group: len(group.runs))

    def peak_bytes(layout: Layout) -> int | None:
        peak = peak_memory(make_inputs(replace(group, layout=layout), family, targets))
        return None if peak is None else sum(peak)

    with factories.plugin_errors(plan.runs):
        return widest_fitting(group.layout, group.configs[0].engine, peak_bytes, plan.machine.memory)


def check_memory(inputs: Inputs) -> None:
    """Raises `ConfigError`, with the largest widths that fit, if the programs of a group do not fit into memory.

    On a CPU the system kills processes that are out of memory, so this is checked before anything runs.
    """
    group, peak, available = inputs.group, peak_memory(inputs), devices.free_bytes()
    if peak is not None and peak.temp_bytes <= available:
        return
    layout, config = group.layout, group.configs[0]
    needed = "more memory than the device has" if peak is None else memory.gibibytes(peak.temp_bytes)
    step_bytes = memory.step_bytes(build.task(config, group.dataset), group.dataset, 1)
    fitting = next((narrower for narrower in layout.narrower() if _fits(group, narrower, available)), None)
    if fitting is not None:
        remedy = (
            f"use engine.client_width = {fitting.client_width} and engine.run_width = {fitting.run_width}, or free "
            "memory for a run that is resumed, which keeps its widths"
        )
    elif step_bytes > available:
        remedy = f"use a smaller model: a step on one example needs {memory.gibibytes(step_bytes)}"
    else:
        remedy = "lower server.cohort_size, client.batch_size or engine.micro_batch, or run fewer runs in one sweep"
    raise ConfigError(
        f"engine.client_width: {layout.client_width} clients x {layout.run_width} runs in lockstep need {needed} in "
        f"addition to the data, and {memory.gibibytes(available)} are free; {remedy}"
    )


def _fits(group: Group, layout: Layout, available: int) -> bool:
    narrower = replace(group, layout=layout)
    peak = peak_memory(make_inputs(narrower, make_family([narrower])))
    return peak is not None and peak.temp_bytes <= available
