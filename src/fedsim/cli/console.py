"""What a user sees in the terminal: the plan, what is counted, the results."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.table import Table

from fedsim.engine.estimate import group_bytes, group_seconds
from fedsim.engine.layout import Layout
from fedsim.engine.memory import gibibytes
from fedsim.engine.plan import Plan
from fedsim.report.names import count, duration
from fedsim.runs.folder import RunFolder

if TYPE_CHECKING:
    from fedsim.datasets.catalogue import DataSetInfo

MIN_WIDTH = 100  # columns where the output is no terminal


def terminal(stderr: bool = False, least_width: int = 0) -> Console:
    """Where tables and lines go."""
    console = Console(stderr=stderr, highlight=False, soft_wrap=True)
    width = max(console.width if console.is_terminal else MIN_WIDTH, least_width)
    if console.is_terminal and width == console.width:
        return console
    return Console(stderr=stderr, highlight=False, width=width)


class Counter:
    """A line on stderr that counts; where that is no terminal, a line for each thing that is counted."""

    def __init__(self) -> None:
        self._console = terminal(stderr=True)
        self._status = self._console.status("")
        self._what = ""

    def __enter__(self) -> "Counter":
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._status.stop()

    def tick(self, what: str, done: int, total: int) -> None:
        """`done` of `total` `what`; a total of 0 is not known."""
        if self._console.is_terminal:
            so_far = f" {done:,}" if done else ""
            of_all = f" of {total:,}" if total else ""
            self._status.update(f"{what}{so_far}{of_all}")
        elif what != self._what:
            self._console.print(f"{what} ...", markup=False)
        self._what = what


def show_plan(plan: Plan, path: Path) -> None:
    """What would run: a line a group, with the memory that it needs at most and about how long it takes here."""
    caption = (
        "A group is one compiled program. In lockstep: clients of a run x runs, on each device. Time is without "
        "compiling, from a few steps just timed."
    )
    table = Table(caption=caption, caption_justify="left", caption_style="")
    for name in (
        "group",
        "aggregator",
        "data",
        "runs",
        "rounds",
        "in lockstep",
        "examples at a time",
        "devices",
        "memory",
        "time",
    ):
        table.add_column(name, justify="left" if name in ("aggregator", "data") else "right")
    seconds = 0.0
    for number, group in enumerate(plan.groups):
        configs, dataset = plan.configs(group), plan.dataset(group)
        needed, takes = group_bytes(configs, dataset, group.layout), group_seconds(configs, dataset, group.layout)
        seconds += takes
        *cells, devices = group_cells(plan, number, group.layout)
        examples = str(group.layout.micro_batch or configs[0].client.batch_size)
        table.add_row(*cells, examples, devices, gibibytes(needed), duration(takes))
    console = terminal()
    console.print(table)
    summary = f"{count(len(plan.runs), 'run')} in {count(len(plan.groups), 'group')}, about {duration(seconds)}"
    console.print(f"{summary}, would be written to {path}", markup=False)


def group_cells(plan: Plan, number: int, layout: Layout) -> list[str]:
    """Number, rule, data, runs, rounds, models in lockstep and devices of a group of the plan that has `layout`."""
    group = plan.groups[number]
    config = plan.configs(group)[0]
    rule, data = (name.rpartition(":")[2] for name in (config.server.aggregator, config.data.name))
    lockstep = f"{layout.client_width} x {layout.run_width}"
    devices = layout.run_devices * layout.client_devices
    return list(map(str, [number + 1, rule, data, len(group.runs), config.server.num_rounds, lockstep, devices]))


def show_datasets(entries: Sequence["DataSetInfo"]) -> None:
    """A line a data set."""
    table = Table()
    for name in ("data set", "clients", "training examples", "test examples", "where"):
        table.add_column(name, justify="right" if name not in ("data set", "where") else "left", overflow="fold")
    for entry in entries:
        numbers = (entry.num_clients, entry.num_train, entry.num_test)
        table.add_row(entry.name, *("" if n is None else f"{n:,}" for n in numbers), entry.where)
    terminal().print(table)


def show_results(shown: Sequence[RenderableType], folder: RunFolder | None) -> None:
    """Tables, and where everything is, if it was written."""
    console = terminal()
    for table in shown:
        console.print(table)
    if folder is None:
        return
    files = [
        folder.path / name
        for name in ("summary.csv", "paired.csv", "table.md", "table.tex", "worst.md", "worst.tex", "paper.md")
    ]
    for path in [*filter(Path.exists, files), *sorted((folder.path / "figures").glob("*.png"))]:
        beside = " (and .pdf)" if path.suffix == ".png" and path.with_suffix(".pdf").exists() else ""
        console.print(f"{path}{beside}", markup=False)
