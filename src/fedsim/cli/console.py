"""Tables of the command line: data sets and results; and a counter."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table

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

    def __exit__(self, *error: object) -> None:
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


def show_datasets(entries: Sequence["DatasetInfo"]) -> None:
    """Shows a line per data set."""
    table = Table()
    for name in ("data set", "clients", "training examples", "test examples", "location"):
        table.add_column(name, justify="right" if name not in ("data set", "location") else "left", overflow="fold")
    for entry in entries:
        numbers = (entry.num_clients, entry.num_train, entry.num_test)
        table.add_row(entry.name, *("" if n is None else f"{n:,}" for n in numbers), entry.location)
    make_console().print(table)


def show_results(tables: Sequence[RenderableType], written: Sequence[Path]) -> None:
    """Shows tables, and the paths of the files that `report.write` has written."""
    console = make_console()
    for table in tables:
        console.print(table)
    for path in written:
        also = " (and .pdf)" if path.suffix == ".png" else ""
        console.print(f"{path}{also}", markup=False)
