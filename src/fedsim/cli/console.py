"""Tables of the command line: the plan, data sets and results; and a counter."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table

from fedsim.engine.estimate import group_bytes, group_seconds
from fedsim.engine.layout import Layout
from fedsim.engine.memory import gibibytes
from fedsim.engine.plan import Plan
from fedsim.report.names import count, duration
from fedsim.runs.folder import RunFolder
from fedsim.terminal import make_console

if TYPE_CHECKING:
    from fedsim.datasets.catalog import DatasetInfo


class Counter:
    """A status line on stderr that counts; outside a terminal, a line for each new activity."""

    def __init__(self) -> None:
        self._console = make_console(stderr=True)
        self._status = self._console.status("")
        self._activity = ""

    def __enter__(self) -> "Counter":
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._status.stop()

    def tick(self, activity: str, completed: int, total: int) -> None:
        """Shows the activity and that `completed` of `total` units are; a total of 0 is unknown."""
        if self._console.is_terminal:
            so_far = f" {completed:,}" if completed else ""
            of_all = f" of {total:,}" if total else ""
            self._status.update(f"{activity}{so_far}{of_all}")
        elif activity != self._activity:
            self._console.print(f"{activity} ...", markup=False)
        self._activity = activity


def show_plan(plan: Plan, path: Path) -> None:
    """Shows the plan: a line per group, with its peak memory and about how long it takes on this machine."""
    caption = (
        "Groups with the same program are compiled once. Vectorized: clients of a run x runs, on each device. The time "
        "excludes compilation and is estimated from a few timed steps."
    )
    table = Table(caption=caption, caption_justify="left", caption_style="")
    for name in (
        "program",
        "group",
        "aggregator",
        "data",
        "runs",
        "rounds",
        "vectorized",
        "micro-batch",
        "devices",
        "memory",
        "time",
    ):
        table.add_column(name, justify="left" if name in ("aggregator", "data") else "right")
    seconds = 0.0
    programs = {family: 1 + position for position, family in enumerate(dict.fromkeys(plan.families))}
    for number, group in enumerate(plan.groups):
        configs, dataset = plan.configs(group), plan.dataset(group)
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
    config = plan.configs(group)[0]
    aggregator, data = (name.rpartition(":")[2] for name in (config.server.aggregator, config.data.name))
    vectorized = f"{layout.client_width} x {layout.run_width}"
    devices = layout.run_devices * layout.client_devices
    return list(
        map(str, [number + 1, aggregator, data, len(group.runs), config.server.num_rounds, vectorized, devices])
    )


def show_datasets(entries: Sequence["DatasetInfo"]) -> None:
    """Shows a line per data set."""
    table = Table()
    for name in ("data set", "clients", "training examples", "test examples", "location"):
        table.add_column(name, justify="right" if name not in ("data set", "location") else "left", overflow="fold")
    for entry in entries:
        numbers = (entry.num_clients, entry.num_train, entry.num_test)
        table.add_row(entry.name, *("" if n is None else f"{n:,}" for n in numbers), entry.location)
    make_console().print(table)


def show_results(tables: Sequence[RenderableType], folder: RunFolder | None) -> None:
    """Shows tables, and the paths of the files that were written into `folder`."""
    console = make_console()
    for table in tables:
        console.print(table)
    if folder is None:
        return
    files = [
        folder.path / name
        for name in ("summary.csv", "paired.csv", "table.md", "table.tex", "worst.md", "worst.tex", "paper.md")
    ]
    for path in [*filter(Path.exists, files), *sorted((folder.path / "figures").glob("*.png"))]:
        also = " (and .pdf)" if path.suffix == ".png" and path.with_suffix(".pdf").exists() else ""
        console.print(f"{path}{also}", markup=False)
