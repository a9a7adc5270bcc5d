"""Tables as data; `render.py` shows them in a terminal and as Markdown, `latex.py` in LaTeX."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from fedsim.report.metric import Metric

DIVERGED, SKIPPED = "†", "‡"


@dataclass(frozen=True)
class Column:
    """A column after the first; neighbors of one group share a heading in LaTeX."""

    group: str
    """For example "Shuffling"."""
    name: str = ""
    """For example "30 %"; empty if the group has one column."""
    is_text: bool = False
    """Whether entries are left-aligned and may be wrapped."""

    @property
    def label(self) -> str:
        """Group and name, for a heading of one line."""
        return f"{self.group} {self.name}".strip()


@dataclass(frozen=True)
class Number:
    """A mean over splits or seeds, in the unit that the table's title names."""

    mean: float
    """NaN: all runs have diverged."""
    spread: float | None = None
    """What stands after ±; None: one split with one seed."""
    bold: bool = False
    num_runs: int = 1
    num_diverged: int = 0
    """Runs that have diverged; if there are any, the number is marked with a dagger."""
    num_skipped: int = 0
    """Runs in which no client had a weight at the end; if there are any, the number is marked with a double dagger."""

    @property
    def marks(self) -> str:
        """Those of the notes below the table; a number with any is never bold."""
        return (DIVERGED if self.num_diverged else "") + (SKIPPED if self.num_skipped else "")


Entry: TypeAlias = Number | str | None  # None: empty


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    name: str
    """The entry of the first column, such as an aggregation rule with its hyperparameters."""
    entries: tuple[Entry, ...]
    """One for each of the table's `columns`."""
    aggregator: str = ""
    """The rule's name; LaTeX separates the rows of ARFL by a line."""


@dataclass(frozen=True)
class Table:
    """A table of numbers and texts, with a first column of names."""

    title: str
    """For example "Test accuracy (%) after 100 rounds"; may be empty."""
    columns: tuple[Column, ...]
    """All but the first one."""
    rows: tuple[Row, ...]
    header: str = "Aggregator"
    """Heading of the first column."""
    data: str = ""
    """The data set's name, as it is shown."""
    subtitle: str = ""
    """What stands after ±, and which numbers are bold."""
    notes: tuple[str, ...] = ()
    """Lines below the table."""
    signed: bool = False
    """Whether positive means have a sign, as differences do."""
    digits: int = 2
    """Decimals of the numbers."""

    @property
    def numbers(self) -> list[tuple[Row, Column, Number]]:
        entries = [(row, *place) for row in self.rows for place in zip(self.columns, row.entries, strict=True)]
        return [(row, column, entry) for row, column, entry in entries if isinstance(entry, Number)]

    def format_number(self, number: Number, plus_minus: str = "±") -> str:
        """For example "95.32 ± 0.57", or "+1.20 ± 0.31" in a table of differences."""
        spread = "" if number.spread is None else f" {plus_minus} {number.spread:.{self.digits}f}"
        mean = round(number.mean, self.digits) + 0.0  # without the sign of -0
        return f"{mean:{'+' if self.signed else ''}.{self.digits}f}{spread}"

    def heading(self, tables: "Sequence[Table]") -> str:
        """The title, preceded by the data set if `tables` are of several."""
        return f"{self.data}: {self.title}" if len({table.data for table in tables}) > 1 else self.title


def records(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """A record a number of the tables, for programs; numbers in the unit that the table's title names."""
    return [
        {
            "table": table.title,
            "data": table.data,
            "row": row.name,
            "column": column.label,
            "mean": None if math.isnan(number.mean) else number.mean,
            "spread": number.spread,
            "bold": number.bold,
            "num_runs": number.num_runs,
            "num_diverged": number.num_diverged,
            "num_skipped": number.num_skipped,
        }
        for table in tables
        for row, column, number in table.numbers
    ]


def mark_notes(table: Table) -> list[str]:
    """What the marks of the numbers mean: which runs diverged, and which had skipped rounds."""
    diverged, skipped = [], []
    for row, column, number in table.numbers:
        place = f"{row.name}, {column.label}"
        diverged += [f"{place}: {number.num_diverged} of {number.num_runs}"] if number.num_diverged else []
        skipped += [f"{place}: {number.num_skipped} of {number.num_runs}"] if number.num_skipped else []
    notes = [f"{DIVERGED} diverged runs: {'; '.join(diverged)}."] if diverged else []
    return notes + (
        [f"{SKIPPED} runs in which no client had a weight at the end: {'; '.join(skipped)}."] if skipped else []
    )


def with_best_in_bold(table: Table, metric: Metric) -> Table:
    """The best mean of each column in bold, and all that are rounded to the same number; none if no other is worse."""
    shown = lambda number: round(number.mean, table.digits)

    def best(entries: Sequence[Entry]) -> float:
        numbers = [entry for entry in entries if isinstance(entry, Number)]
        whole = [shown(number) for number in numbers if not number.marks and math.isfinite(number.mean)]
        return metric.best(whole) if len(set(whole)) > 1 or len(whole) < len(numbers) else math.nan

    def mark(entry: Entry, value: float) -> Entry:
        if not isinstance(entry, Number):
            return entry
        return replace(entry, bold=not entry.marks and shown(entry) == value)

    of_columns = [best(column) for column in zip(*(row.entries for row in table.rows), strict=True)]
    rows = (replace(row, entries=tuple(map(mark, row.entries, of_columns))) for row in table.rows)
    return replace(table, rows=tuple(rows))


def text_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], num_text: int = 1) -> Table:
    """A table of texts alone; the first `num_text` columns are left-aligned, the others are numbers."""
    columns = [Column(name, is_text=position < num_text) for position, name in enumerate(header)]
    lines = tuple(Row(line[0], tuple(line[1:])) for line in rows)
    return Table(title, tuple(columns[1:]), lines, header=header[0])
