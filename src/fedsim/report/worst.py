"""What is left of each rule under the worst of several attacks."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from fedsim.report.cells import Cell, Results, data_sets, is_clean
from fedsim.report.measure import Measure, measures
from fedsim.report.names import data_name, wrong_name
from fedsim.report.rows import ordered_rows, row_names
from fedsim.report.summary import final_mean
from fedsim.report.table import Column, Row, Table, after, best_in_bold, closing_notes, number_of

LEAST = 3  # kinds of what is wrong that make a comparison


class Wrong(NamedTuple):
    """What corrupted clients do, whatever their share."""

    corruption: str
    attack: str


class Grid(NamedTuple):
    """The cells of a data set by row, by what is wrong and by the share of corrupted clients."""

    results: Results
    data: str
    measure: Measure
    rows: list[str]
    wrongs: list[Wrong]
    fractions: list[float]
    cells: dict[tuple[str, Wrong, float], Cell]
    clean: dict[str, Cell]  # by row

    def final(self, cell: Cell | None) -> float:
        """The mean over seeds; NaN: no such runs, or all have diverged."""
        return math.nan if cell is None else final_mean(cell, self.measure)

    def worst(self, row: str, fraction: float) -> Cell | None:
        """The cell of the worst mean at this share; one whose runs have all diverged is worse than any."""
        found = [self.cells[key] for wrong in self.wrongs if (key := (row, wrong, fraction)) in self.cells]
        sign = -1 if self.measure.higher_is_better else 1
        badness = lambda cell: math.inf if math.isnan(value := self.final(cell)) else sign * value
        return max(found, key=badness, default=None)


def grids(results: Results) -> list[Grid]:
    """A grid for each data set on which three or more things are wrong with clients."""
    measure_of = measures(results.cells)
    names = dict(zip(results.cells, row_names(results.cells), strict=True))
    found = []
    for data in data_sets(results.cells):
        mine = [cell for cell in results.cells if cell.data == data]
        bad = [cell for cell in mine if not is_clean(cell.scenario)]
        wrongs = list(dict.fromkeys(Wrong(cell.corruption, cell.attack) for cell in bad))
        if len(wrongs) >= LEAST:
            cells = {(names[cell], Wrong(cell.corruption, cell.attack), cell.fraction): cell for cell in bad}
            clean = {names[cell]: cell for cell in mine if is_clean(cell.scenario)}
            fractions = sorted({cell.fraction for cell in bad})
            rows = ordered_rows(mine, [names[cell] for cell in mine])
            found.append(Grid(results, data, measure_of[data], rows, wrongs, fractions, cells, clean))
    return found


def worst_tables(results: Results) -> list[Table]:
    """A table for each data set with several attacks: each rule's worst mean at each share of corrupted clients."""
    return [_table(grid) for grid in grids(results)]


def _table(grid: Grid) -> Table:
    columns = [Column("Clean", "")] if grid.clean else []
    columns += [Column("Worst", f"{100 * fraction:.3g} %") for fraction in grid.fractions]
    rows = []
    for row in grid.rows:
        cells = [grid.clean.get(row)] if grid.clean else []
        cells += [grid.worst(row, fraction) for fraction in grid.fractions]
        numbers = tuple(None if cell is None else number_of(cell, grid.measure) for cell in cells)
        one = next(cell for cell in grid.cells if cell[0] == row)
        rows.append(Row(row, numbers, grid.cells[one].aggregator))
    kinds = ", ".join(wrong_name(*wrong) for wrong in grid.wrongs)
    title = f"{grid.measure.title}{grid.measure.unit} {after(grid.cells.values())}, worst of {len(grid.wrongs)}"
    subtitle = "the worst mean over seeds, and its deviation; best in bold"
    notes = (f"Worst of: {kinds}.", *closing_notes(grid.results, grid.data, grid.measure))
    table = Table(data_name(grid.data), title, subtitle, tuple(columns), tuple(rows), notes, digits=grid.measure.digits)
    return best_in_bold(table, grid.measure)


def narrow(tables: Sequence[Table], results: Results, most: int = 9) -> list[Table]:
    """The tables for a terminal: where one has more than `most` columns, its worst-case table in its place."""
    worst = {table.data: table for table in worst_tables(results)}
    shown = []
    for table in tables:
        if len(table.columns) <= most or table.data not in worst:
            shown.append(table)
        else:
            note = f"table.md and the figures have all {len(table.columns)} columns."
            shown.append(replace(worst[table.data], notes=(*worst[table.data].notes, note)))
    return shown
