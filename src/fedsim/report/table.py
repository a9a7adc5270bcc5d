"""Tables as plain data: what the renderers (`render.py`, `latex.py`) show."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fedsim.report.cells import Cell, Results, data_sets, scenarios
from fedsim.report.names import data_name, ordered_rows, row_names, scenario_parts
from fedsim.report.summary import mean, std


@dataclass(frozen=True)
class Column:
    """A column; neighbours of one group share a heading where the format can."""

    group: str  # "Shuffling"
    name: str  # "30 %"; empty where the group has no parts

    @property
    def label(self) -> str:
        """Both, for a heading of one line."""
        return f"{self.group} {self.name}".strip()


@dataclass(frozen=True)
class Entry:
    """A number of a table, in percent or percentage points."""

    mean: float
    spread: float | None = None  # what stands after ±; None: one seed
    bold: bool = False
    num_runs: int = 1
    num_diverged: int = 0  # of these, diverged at the end: the entry gets a dagger


@dataclass(frozen=True)
class Row:
    """A rule, or a rule with its settings."""

    name: str
    entries: tuple[Entry | None, ...]  # one a column; None: no such run
    aggregator: str  # which rule it is; ARFL's rows stand apart in LaTeX


@dataclass(frozen=True)
class Table:
    """A table of one data set."""

    data: str  # the data set's name, as it is shown
    title: str  # "Test accuracy (%) after 100 rounds"
    subtitle: str  # what stands after ±, and what is bold
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()  # lines below
    signed: bool = False  # differences: + before positive means


def accuracy_tables(results: Results) -> list[Table]:
    """Final test accuracy in percent, a table a data set: mean and deviation over seeds, best in bold."""
    return [_accuracy(results, data) for data in data_sets(results.cells)]


def _accuracy(results: Results, data: str) -> Table:
    names = row_names(results.cells)
    chosen = [(name, cell, _entry(cell)) for name, cell in zip(names, results.cells, strict=True) if cell.data == data]
    seeds = {len(cell.runs) for _, cell, _ in chosen}
    number = f"{max(seeds)} seeds" if len(seeds) == 1 else f"up to {max(seeds)} seeds"
    over = f"mean ± standard deviation over {number}" if max(seeds) > 1 else "one seed"
    title = f"Test accuracy (%) {after(cell for _, cell, _ in chosen)}"
    table = tabulate(title, f"{over}; best in bold", chosen)
    if results.num_repeated:
        note = f"{results.num_repeated} runs are in several folders; the first folder's count."
        table = replace(table, notes=(*table.notes, note))
    return _best_in_bold(table)


def after(cells: Iterable[Cell]) -> str:
    """For example "after 100 rounds"."""
    lengths = {int(cell.rounds[-1]) for cell in cells}
    return f"after {lengths.pop()} rounds" if len(lengths) == 1 else "after the last round"


def _entry(cell: Cell) -> Entry | None:
    final = 100 * cell.accuracy[:, -1]
    middle = mean(final)
    return None if middle is None else Entry(middle, std(final), False, len(cell.runs), cell.num_diverged)


def tabulate(title: str, subtitle: str, named: Sequence[tuple[str, Cell, Entry | None]]) -> Table:
    """A table of (row's name, cell, entry) of one data set: a column a scenario; a note tells what diverged."""
    cells = [cell for _, cell, _ in named]
    places = scenarios(cells)
    columns = tuple(Column(*scenario_parts(place)) for place in places)
    entries = {(name, (cell.corruption, cell.fraction)): entry for name, cell, entry in named}
    rules = {name: cell.aggregator for name, cell, _ in named}
    order = ordered_rows(cells, [name for name, _, _ in named])
    rows = tuple(Row(name, tuple(entries.get((name, place)) for place in places), rules[name]) for name in order)
    told = [
        f"{row.name}, {column.label}: {entry.num_diverged} of {entry.num_runs}"
        for row in rows
        for column, entry in zip(columns, row.entries, strict=True)
        if entry is not None and entry.num_diverged
    ]
    notes = (f"† diverged runs: {'; '.join(told)}.",) if told else ()
    return Table(data_name(cells[0].data), title, subtitle, columns, rows, notes)


def _best_in_bold(table: Table) -> Table:
    """The greatest mean of each column in bold, and whatever is shown as the same number."""
    best = [
        max((round(row.entries[column].mean, 2) for row in table.rows if row.entries[column]), default=0.0)  # type: ignore[union-attr]
        for column in range(len(table.columns))
    ]
    bold = lambda entry, mean: entry and replace(entry, bold=round(entry.mean, 2) == mean)
    rows = (replace(row, entries=tuple(map(bold, row.entries, best))) for row in table.rows)
    return replace(table, rows=tuple(rows))
