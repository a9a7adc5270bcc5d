"""Tables as plain data: what the renderers (`render.py`, `latex.py`) show."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fedsim.report.cells import Cell, Results, Scenario, data_sets, scenarios
from fedsim.report.choose import notes
from fedsim.report.measure import BACKDOOR, Measure, measures, with_backdoor
from fedsim.report.names import data_name, scenario_name, scenario_parts
from fedsim.report.rows import ordered_rows, row_names
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
class Number:
    """A number of a table, in the unit that its title names."""

    mean: float  # NaN: all runs have diverged
    spread: float | None = None  # what stands after ±; None: one seed
    bold: bool = False
    num_runs: int = 1
    num_diverged: int = 0  # of these, diverged at the end: the number gets a dagger


@dataclass(frozen=True)
class Row:
    """A rule, or a rule with its settings."""

    name: str
    numbers: tuple[Number | None, ...]  # one a column; None: no such run
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
    digits: int = 2  # decimals

    def mean_text(self, number: Number) -> str:
        """For example "95.32", or "+1.20" in a table of differences."""
        return self._text(number.mean, "+" if self.signed else "")

    def spread_text(self, number: Number) -> str | None:
        """What stands after ±, for example "0.57"."""
        return None if number.spread is None else self._text(number.spread)

    def _text(self, value: float, sign: str = "") -> str:
        return f"{value:{sign}.{self.digits}f}"


class Placed(NamedTuple):
    """A number with where it belongs: the row of that name, the column of its cell's scenario."""

    row: str
    cell: Cell
    number: Number | None


def accuracy_tables(results: Results) -> list[Table]:
    """Final test accuracy in percent, a table a data set: mean and deviation over seeds, best in bold.

    The final test loss for a data set without any accuracy; for one with backdoors a second table, of their success.
    """
    cells, measure_of = results.cells, measures(results.cells)
    backdoors = with_backdoor(cells)
    tables = [_of_data_set(results, data, measure_of[data], cells) for data in data_sets(cells)]
    return tables + [_of_data_set(results, data, BACKDOOR, backdoors) for data in data_sets(backdoors)]


def _of_data_set(results: Results, data: str, measure: Measure, cells: Sequence[Cell]) -> Table:
    """The table of those of `cells` that are of the data set."""
    names = dict(zip(results.cells, row_names(results.cells), strict=True))
    placed = [Placed(names[cell], cell, number_of(cell, measure)) for cell in cells if cell.data == data]
    most = max(len(cell.runs) for _, cell, _ in placed)
    over = f"mean ± standard deviation over {seeds(len(cell.runs) for _, cell, _ in placed)}"
    title = f"{measure.title}{measure.unit} {after(cell for _, cell, _ in placed)}"
    table = tabulate(title, f"{over if most > 1 else 'one seed'}; best in bold", placed)
    if results.num_repeated:
        note = f"{results.num_repeated} runs are in several folders; the first folder's count."
        table = replace(table, notes=(*table.notes, note))
    table = replace(table, notes=(*table.notes, *_above_f(placed), *closing_notes(results, data, measure)))
    return best_in_bold(replace(table, digits=measure.digits), measure)


def _above_f(placed: Sequence[Placed]) -> list[str]:
    """Of rules that were told fewer corrupted clients than some cohort had."""
    most: dict[str, float] = {}
    for row, cell, _ in placed:
        if share := cell.share_above_f:
            most[row] = max(share, most.get(row, 0.0))
    shares = "; ".join(f"{row}: {100 * share:.0f} %" for row, share in most.items())
    return [f"Rounds whose cohort held more corrupted clients than f, at most: {shares}."] if most else []


def closing_notes(results: Results, data: str, measure: Measure) -> tuple[str, ...]:
    """What was chosen, and what is not complete."""
    return (*(notes(results.chosen, data, measure) if results.chosen else ()), *results.incomplete)


def seeds(numbers: Iterable[int]) -> str:
    """For example "5 seeds", or "up to 5 seeds" where some cells have fewer."""
    different = set(numbers)
    return f"{max(different)} seeds" if len(different) == 1 else f"up to {max(different)} seeds"


def after(cells: Iterable[Cell]) -> str:
    """For example "after 100 rounds"; which evaluations are shown."""
    ends, finals = zip(*((int(cell.rounds[-1]), cell.final) for cell in cells), strict=True)
    of = f" of {ends[0]} rounds" if len(set(ends)) == 1 else ""
    if finals[0].kind == "mean":
        return f"over the last {finals[0].number} evaluations{of}"
    if finals[0].kind == "best":
        return f"at the round that is best on validation data{f',{of}' if of else ''}"
    return f"after {ends[0]} rounds" if of else "after the last round"


def number_of(cell: Cell, measure: Measure) -> Number | None:
    """Its mean and deviation over seeds; None where nothing was measured."""
    final = measure.final(cell)
    middle = mean(final)
    if middle is None and not cell.num_diverged:
        return None
    return Number(math.nan if middle is None else middle, std(final), False, len(cell.runs), cell.num_diverged)


def final_numbers(results: Results) -> dict[tuple[str, str, str], Number | None]:
    """What each cell shows, by its data set, row and scenario, as they are called."""
    of_data, names = measures(results.cells), row_names(results.cells)
    return {
        (data_name(cell.data), name, scenario_name(cell.scenario)): number_of(cell, of_data[cell.data])
        for cell, name in zip(results.cells, names, strict=True)
    }


def tabulate(title: str, subtitle: str, placed: Sequence[Placed]) -> Table:
    """A table of one data set: a column a scenario; a note says which runs diverged."""
    cells = [cell for _, cell, _ in placed]
    shown = scenarios(cells)
    numbers: dict[str, dict[Scenario, Number | None]] = {}
    for name, cell, number in placed:
        numbers.setdefault(name, {})[cell.scenario] = number
    rules = {name: cell.aggregator for name, cell, _ in placed}
    order = ordered_rows(cells, [name for name, _, _ in placed])
    columns = tuple(Column(*scenario_parts(scenario)) for scenario in shown)
    rows = tuple(Row(name, tuple(map(numbers[name].get, shown)), rules[name]) for name in order)
    diverged = [
        f"{row.name}, {column.label}: {number.num_diverged} of {number.num_runs}"
        for row in rows
        for column, number in zip(columns, row.numbers, strict=True)
        if number is not None and number.num_diverged
    ]
    notes = (f"† diverged runs: {'; '.join(diverged)}.",) if diverged else ()
    return Table(data_name(cells[0].data), title, subtitle, columns, rows, notes)


def best_in_bold(table: Table, measure: Measure) -> Table:
    """The best mean of each column in bold, and whatever is shown as the same number."""
    by_column = zip(*(row.numbers for row in table.rows), strict=True)
    shown = lambda number: round(number.mean, table.digits)
    is_number = lambda number: number is not None and math.isfinite(number.mean)
    best = [measure.best(map(shown, filter(is_number, column))) for column in by_column]
    bold = lambda number, value: number and replace(number, bold=shown(number) == value)
    rows = (replace(row, numbers=tuple(map(bold, row.numbers, best))) for row in table.rows)
    return replace(table, rows=tuple(rows))
