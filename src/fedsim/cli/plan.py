"""The plan as a table, for `--dry-run`."""

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedsim.engine.estimate import group_bytes, group_seconds
from fedsim.engine.layout import Layout
from fedsim.engine.memory import gibibytes
from fedsim.engine.plan import Plan
from fedsim.report.names import count, duration
from fedsim.terminal import make_console

COLUMNS = ("group", "aggregator", "data", "runs", "rounds", "vectorized", "devices")
"""Of `group_cells`."""


def show_plan(plan: Plan, path: Path) -> None:
    """Shows the plan: a line per group, with its peak memory and about how long it takes on this machine."""
    caption = (
        "Groups with the same program are compiled once. Vectorized: clients of a run x runs, on each device. The time "
        "excludes compilation and is estimated from a few timed steps."
    )
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1), caption=caption, caption_justify="left", caption_style="")
    for name in ("program", *COLUMNS[:-1], "micro-batch", COLUMNS[-1], "memory", "time"):
        table.add_column(name, justify="left" if name in ("aggregator", "data") else "right", overflow="fold")
    seconds = 0.0
    programs = {family: 1 + position for position, family in enumerate(dict.fromkeys(plan.families))}
    for number, group in enumerate(plan.groups):
        configs, dataset = group.configs, group.dataset
        peak_bytes = group_bytes(configs, dataset, group.layout)
        group_time = group_seconds(configs, dataset, group.layout)
        seconds += group_time
        *cells, devices = group_cells(plan, number, group.layout)
        examples = str(group.layout.micro_batch or configs[0].client.batch_size)
        own_program = str(programs[plan.families[number]])
        table.add_row(own_program, *cells, examples, devices, gibibytes(peak_bytes), duration(group_time))
    console = make_console()
    console.print(table)
    for family, program in programs.items():
        reason = f"; separate: {family.reason}" if family.reason else ""
        console.print(f"program {program}: {family}{reason}", markup=False)
    groups = f"{count(len(plan.groups), 'group')} and {count(len(programs), 'program')}"
    for line in regressions(plan):
        console.print(line, markup=False)
    summary = f"{count(len(plan.runs), 'run')} in {groups}, about {duration(seconds)}"
    console.print(f"{summary}, would be written to {path}", markup=False)


def regressions(plan: Plan) -> list[str]:
    """A line for each data set whose targets are numbers."""
    names = dict.fromkeys(dataset.name for dataset in plan.datasets.values() if not dataset.num_classes)
    return [f"{name}: regression, since its labels are numbers, not classes" for name in names]


def group_cells(plan: Plan, number: int, layout: Layout) -> list[str]:
    """The cells of a group with `layout`: number, aggregator, data, runs, rounds, vectorized models and devices."""
    group = plan.groups[number]
    config = group.configs[0]
    aggregator, data = (name.rpartition(":")[2] for name in (config.server.aggregator, config.data.name))
    vectorized = f"{layout.client_width} x {layout.run_width}"
    devices = layout.run_devices * layout.client_devices
    return list(
        map(str, [number + 1, aggregator, data, len(group.runs), config.server.num_rounds, vectorized, devices])
    )
