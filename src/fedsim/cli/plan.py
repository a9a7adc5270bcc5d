"""The plan as a table for `--dry-run`: on this machine, or with `--target` on devices that need not be present."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedsim.engine.fitting import fit_layout
from fedsim.engine.layout import Layout
from fedsim.engine.memory import gibibytes
from fedsim.engine.plan import Plan
from fedsim.engine.store import open_folder
from fedsim.errors import FedsimError
from fedsim.forecast import targets
from fedsim.forecast.estimate import group_bytes, group_seconds
from fedsim.report.names import count, duration
from fedsim.runs.folder import RunFolder
from fedsim.terminal import Counter, make_console

Value = TypeVar("Value")

COLUMNS = ("program", "groups", "aggregator", "data", "runs", "rounds", "vectorized", "micro-batch", "devices")
LEFT = ("aggregator", "data", "fits")
CAPTION = "Groups with the same program are compiled once. Vectorized: clients of a run x runs, on each device. "
UNKNOWN = "?"

Column = tuple[Sequence[Any], Callable[[list[Any]], str]]
"""A value of each group, and how those of several groups are shown."""


def show_plan(plan: Plan, path: Path, force: bool = False, allow_mismatch: bool = False) -> Plan:
    """Shows what of the plan is left to run into a folder, with peak memory and about how long it takes here.

    Returns the plan with these groups. Runs that are continued count with all their rounds. The options are those of
    `run_plan`.
    """
    num_runs, folder = len(plan.runs), RunFolder(path)
    if folder.is_occupied():  # else the data, which may be large, need not be read
        plan = open_folder(folder, plan, force, allow_mismatch, is_dry=True)
    num_left = len({run for group in plan.groups for run in group.runs if run < num_runs})
    if not plan.groups:
        make_console().print(f"nothing to run: {path} has all of {count(num_runs, 'run')}")
        return plan
    groups = [(group.configs, group.dataset, group.layout) for group in plan.groups]
    needed, seconds = [group_bytes(*group) for group in groups], [group_seconds(*group) for group in groups]
    columns: dict[str, Column] = {
        "memory": (needed, lambda values: gibibytes(max(values))),
        "time": (seconds, lambda values: duration(sum(values))),
    }
    caption = "Memory: of all devices, by shapes. The time is estimated from a few timed steps, without compilation, "
    caption += "attacks, rules and personal models."
    summary = f"about {duration(sum(seconds))}, would be written to {path}"
    if num_left < num_runs:
        summary += f", which has {num_runs - num_left} of {count(num_runs, 'run')}"
    _show(plan, [layout for *_, layout in groups], columns, caption, summary)
    return plan


def show_forecast(plan: Plan, target: targets.Target) -> None:
    """Shows the plan as compiled for `target`, with the memory of a group and whether that fits."""
    families = list(dict.fromkeys(plan.families))
    devices = _try(target, partial(targets.devices, target))
    fitted = {}
    with Counter() as counter:
        for number, family in enumerate(families if devices else []):
            counter.tick(f"compiling for {target}", number, len(families))
            fitted[family] = _try(target, partial(fit_layout, plan, family, devices))
    found, available = [fitted.get(family) for family in plan.families], plan.machine.memory
    layouts = [one[0] if one else group.layout for one, group in zip(found, plan.groups, strict=True)]
    memory = [gibibytes(one[1]) if one and one[1] else UNKNOWN for one in found]
    fits = [("yes" if one[1] and one[1] <= available else "no") if one else UNKNOWN for one in found]
    caption = f"Memory: of each device, which has {gibibytes(available)}, as the compiler for {target} says."
    summary = f"{fits.count('yes')} of {count(len(fits), 'group')} fit on {target}"
    if num_unknown := fits.count(UNKNOWN):
        summary += f", {num_unknown} unknown"
    columns = {"memory": (memory, lambda values: values[0]), "fits": (fits, lambda values: values[0])}
    _show(plan, layouts, columns, caption, summary)


def _show(plan: Plan, layouts: Sequence[Layout], columns: Mapping[str, Column], caption: str, summary: str) -> None:
    """Shows a line for the groups that are alike, with their `columns`, the programs, and the end of a `summary`."""
    table = Table(
        box=SIMPLE_HEAD, padding=(0, 0, 0, 1), caption=CAPTION + caption, caption_justify="left", caption_style=""
    )
    for name in (*COLUMNS, *columns):
        table.add_column(name, justify="left" if name in LEFT else "right", overflow="fold")
    programs = {family: 1 + position for position, family in enumerate(dict.fromkeys(plan.families))}
    alike: dict[tuple[Any, ...], list[int]] = {}
    for number, (group, layout) in enumerate(zip(plan.groups, layouts, strict=True)):
        config = group.configs[0]
        cells = (
            programs[plan.families[number]],
            config.server.aggregator.rpartition(":")[2],
            config.data.name.rpartition(":")[2],
            config.server.num_rounds,
            f"{layout.client_width} x {layout.run_width}",
            layout.micro_batch or config.client.batch_size,
            layout.num_devices,
        )
        alike.setdefault(cells, []).append(number)
    for (program, aggregator, data, *others), numbers in alike.items():
        num_runs = sum(len(plan.groups[number].runs) for number in numbers)
        shown = [show([values[number] for number in numbers]) for values, show in columns.values()]
        table.add_row(*map(str, [program, len(numbers), aggregator, data, num_runs, *others, *shown]))
    console = make_console()
    console.print(table)
    for family, program in programs.items():
        console.print(f"program {program}: {family}")
    for name in dict.fromkeys(dataset.name for dataset in plan.datasets.values() if not dataset.num_classes):
        console.print(f"{name}: regression, since its labels are numbers, not classes")
    groups = f"{count(len(plan.groups), 'group')} and {count(len(programs), 'program')}"
    num_runs = sum(len(group.runs) for group in plan.groups)
    console.print(f"{count(num_runs, 'run')} in {groups}, {summary}")


def _try(target: targets.Target, compute: Callable[[], Value]) -> Value | None:
    """`compute()`; None, after a line on stderr, if the compiler raises anything, also when it starts."""
    try:
        return compute()
    except FedsimError:
        raise
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        print(f"fedsim: the compiler for {target} fails: {type(error).__name__}: {first_line}", file=sys.stderr)
        return None
