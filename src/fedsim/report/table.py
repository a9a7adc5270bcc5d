"""Tables as plain data: what the renderers (`render.py`, `latex.py`) show."""

from collections.abc import Callable
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
    num_diverged: int = 0  # runs that had diverged at the end: the entry gets a dagger


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
    chosen = [(cell, name) for cell, name in zip(results.cells, names, strict=True) if cell.data == data]
    table = tabulate([cell for cell, _ in chosen], [name for _, name in chosen], _entry)
    seeds = {len(cell.runs) for cell, _ in chosen}
    number = f"{max(seeds)} seeds" if len(seeds) == 1 else f"up to {max(seeds)} seeds"
    over = f"mean ± standard deviation over {number}" if max(seeds) > 1 else "one seed"
    lengths = {int(cell.rounds[-1]) for cell, _ in chosen}
    when = f"{lengths.pop()} rounds" if len(lengths) == 1 else "the last round"
    notes = table.notes
    if results.num_repeated:
        notes += (f"{results.num_repeated} runs are in several folders; the first one's count.",)
    table = replace(table, title=f"Test accuracy (%) after {when}", subtitle=f"{over}; best in bold", notes=notes)
    return _best_in_bold(table)


def _entry(cell: Cell) -> Entry | None:
    final = 100 * cell.accuracy[:, -1]
    middle = mean(final)
    return None if middle is None else Entry(middle, std(final), num_diverged=cell.num_diverged)


def tabulate(cells: list[Cell], names: list[str], entry: Callable[[Cell], Entry | None]) -> Table:
    """The cells of one data set as a table without titles: rows are their `names`, columns their scenarios."""
    columns = scenarios(cells)
    found = {(n, (cell.corruption, cell.fraction)): cell for cell, n in zip(cells, names, strict=True)}
    rules = {name: cell.aggregator for cell, name in zip(cells, names, strict=True)}
    entries = {place: entry(cell) for place, cell in found.items()}
    rows = tuple(
        Row(name, tuple(entries.get((name, column)) for column in columns), rules[name])
        for name in ordered_rows(cells, names)
    )
    told = [
        f"{name}, {Column(*scenario_parts(column)).label}: {e.num_diverged} of {len(found[name, column].runs)}"
        for (name, column), e in entries.items()
        if e is not None and e.num_diverged
    ]
    notes = (f"† diverged runs: {'; '.join(told)}.",) if told else ()
    headings = tuple(Column(*scenario_parts(column)) for column in columns)
    return Table(data_name(cells[0].data), "", "", headings, rows, notes)


def _best_in_bold(table: Table) -> Table:
    """The greatest mean of each column in bold, and whatever is shown as the same number."""
    rows = [list(row.entries) for row in table.rows]
    for column in range(len(table.columns)):
        shown = [round(entries[column].mean, 2) for entries in rows if entries[column] is not None]  # type: ignore[union-attr]
        for entries in rows:
            if (e := entries[column]) is not None:
                entries[column] = replace(e, bold=round(e.mean, 2) == max(shown))
    return replace(table, rows=tuple(replace(row, entries=tuple(e)) for row, e in zip(table.rows, rows, strict=True)))
