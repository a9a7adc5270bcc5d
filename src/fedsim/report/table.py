"""Tables as data; `render.py` shows them in a terminal and as Markdown, `latex.py` in LaTeX."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from fedsim.report.metric import Metric

DIVERGED, SKIPPED, PARTIAL, FEWER, EARLY = "†", "‡", "§", "¶", "‖"
MEANINGS = {
    DIVERGED: "diverged runs",
    SKIPPED: "runs in which no client had a weight at the end",
    PARTIAL: "the worst without threats of other rows",
    FEWER: "fewer runs than another row has",
    EARLY: "rounds are missing, more than in another row",
}


@dataclass(frozen=True)
class Column:
    """A column after the first; neighbors of one group share a heading in LaTeX."""

    group: str  # for example "Shuffling"
    name: str = ""  # for example "30 %"; empty if the group has one column
    is_text: bool = False  # whether entries are left-aligned and may be wrapped

    @property
    def label(self) -> str:
        return f"{self.group} {self.name}".strip()


@dataclass(frozen=True)
class Number:
    """A mean over splits or seeds, in the unit that the table's title names."""

    mean: float  # NaN: all runs have diverged
    spread: float | None = None  # what stands after ±; None: one split with one seed
    bold: bool = False
    num_runs: int = 1
    num_diverged: int = 0
    num_skipped: int = 0  # runs in which no client had a weight at the end
    is_partial: bool = False  # the worst without threats of other rows
    most_runs: int = 0  # of the numbers of its column
    missing_rounds: int = 0  # of incomplete runs
    fewest_missing: int = 0  # in the numbers of its column

    @property
    def marks(self) -> str:
        """Explained below the table; a number with any is never bold."""
        return "".join(self.marked)

    @property
    def marked(self) -> dict[str, str]:
        """Its marks, each with the number of runs that it is about."""
        of = {
            DIVERGED: f": {self.num_diverged} of {self.num_runs}" if self.num_diverged else None,
            SKIPPED: f": {self.num_skipped} of {self.num_runs}" if self.num_skipped else None,
            PARTIAL: "" if self.is_partial else None,
            FEWER: f": {self.num_runs} of {self.most_runs}" if self.num_runs < self.most_runs else None,
            EARLY: f": {self.missing_rounds}" if self.missing_rounds > self.fewest_missing else None,
        }
        return {mark: runs for mark, runs in of.items() if runs is not None}


Entry: TypeAlias = Number | str | None  # None: empty


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    name: str  # the entry of the first column, such as an aggregation rule with its hyperparameters
    entries: tuple[Entry, ...]  # one for each of the table's `columns`
    aggregator: str = ""  # the rule's name; LaTeX separates the rows of ARFL by a line


@dataclass(frozen=True)
class Table:
    """A table of numbers and texts, with a first column of names."""

    title: str  # for example "Test accuracy (%) after 100 rounds"; may be empty
    columns: tuple[Column, ...]  # all but the first one
    rows: tuple[Row, ...]
    header: str = "Aggregator"  # of the first column
    data: str = ""  # the data set's name, as it is shown
    subtitle: str = ""  # what stands after ±, and which numbers are bold
    notes: tuple[str, ...] = ()  # lines below the table
    signed: bool = False  # whether positive means have a sign, as differences do
    digits: int = 2  # decimals of the numbers

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
            **asdict(number),
            "mean": None if math.isnan(number.mean) else number.mean,
        }
        for table in tables
        for row, column, number in table.numbers
    ]


def mark_notes(table: Table) -> list[str]:
    """What the marks of the numbers mean, and where they are."""
    notes = []
    for mark, meaning in MEANINGS.items():
        marked = [(row, column, number.marked) for row, column, number in table.numbers if mark in number.marked]
        places = "; ".join(f"{row.name}, {column.label}{of[mark]}" for row, column, of in marked)
        notes += [f"{mark} {meaning}: {places}."] if marked else []
    return notes


def with_most_runs(table: Table) -> Table:
    """The table whose numbers know how many runs, and how few missing rounds, others of their columns have."""
    most = lambda numbers: max((number.num_runs for number in numbers), default=0)
    fewest = lambda numbers: min((number.missing_rounds for number in numbers), default=0)
    change = lambda number, others: replace(number, most_runs=others[0], fewest_missing=others[1])
    return _by_column(table, lambda numbers: (most(numbers), fewest(numbers)), change)


def with_best_in_bold(table: Table, metric: Metric) -> Table:
    """The best mean of each column in bold, and all that are rounded to the same number; none if no other is worse."""
    shown = lambda number: round(number.mean, table.digits)

    def best(numbers: Sequence[Number]) -> float:
        whole = [metric.sign * shown(number) for number in numbers if not number.marks and math.isfinite(number.mean)]
        has_worse = len(set(whole)) > 1 or any(number.num_diverged or number.num_skipped for number in numbers)
        return metric.sign * max(whole, default=math.nan) if has_worse else math.nan

    mark = lambda number, value: replace(number, bold=True) if not number.marks and shown(number) == value else number
    return _by_column(table, best, mark)


def _by_column(
    table: Table, summarize: Callable[[Sequence[Number]], Any], change: Callable[[Number, Any], Number]
) -> Table:
    """The table with each number changed by the summary of the numbers in its column."""
    columns = zip(*(row.entries for row in table.rows), strict=True)
    summaries = [summarize([entry for entry in of if isinstance(entry, Number)]) for of in columns]
    changed = lambda entry, summary: change(entry, summary) if isinstance(entry, Number) else entry
    rows = (replace(row, entries=tuple(map(changed, row.entries, summaries))) for row in table.rows)
    return replace(table, rows=tuple(rows))


def text_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table of texts alone."""
    columns = tuple(Column(name, is_text=True) for name in header[1:])
    return Table(title, columns, tuple(Row(name, tuple(texts)) for name, *texts in rows), header=header[0])
