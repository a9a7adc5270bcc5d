"""What is left of each rule under the worst of several attacks."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from fedsim.report.accuracy import complete, draws_text, final_number, final_text
from fedsim.report.metric import Metric
from fedsim.report.names import SweptValues, format_values, percent, threat_name
from fedsim.report.results import Results
from fedsim.report.rows import ordered_rows, row_names
from fedsim.report.settings import Setting, Threat
from fedsim.report.table import Column, Number, Row, Table, with_best_in_bold

MIN_THREATS = 3  # that make a comparison
MAX_COLUMNS = 9  # of a table in a terminal


class ThreatGrid(NamedTuple):
    """The settings of a data set by row and by the share of corrupted or malicious clients.

    If keys of the data were swept, those with one value of each.
    """

    results: Results
    data: str
    data_values: SweptValues
    rules: dict[str, str]  # of each row, in their order
    threats: list[Threat]
    shares: list[float]  # ascending; 0: clean
    settings: dict[tuple[str, float], list[Setting]]  # by row and share

    @property
    def metric(self) -> Metric:
        return self.results.metric(next(chain.from_iterable(self.settings.values())))

    @property
    def when(self) -> str:
        return final_text(chain.from_iterable(self.settings.values()), self.results.final)

    def threats_of(self, row: str, share: float) -> set[Threat]:
        """The threats of a row at this share."""
        return {setting.scenario.threat_kind for setting in self.settings.get((row, share), [])}

    @property
    def most_threats(self) -> int:
        """The threats of the row with the most, at the share with the most."""
        return max(len(self.threats_of(row, share)) for row, share in self.settings)

    def is_partial(self, row: str, share: float) -> bool:
        """Whether the row lacks threats of a row with the most: its worst is no fair comparison."""
        return lacks_threats(row, {other: self.threats_of(other, share) for other in self.rules})

    def worst(self, row: str, share: float, threat: Threat | None = None) -> Setting | None:
        """The setting of the worst mean at this share, under the `threat`, or under any."""
        settings = self.settings.get((row, share), [])
        return self.results.worst((s for s in settings if threat in (None, s.scenario.threat_kind)), self.metric)


def lacks_threats(row: str, of_rows: Mapping[str, set[Any]]) -> bool:
    """Whether a row with threats lacks some that the rows with the most have."""
    return 0 < len(of_rows[row]) < len(threats_of_fullest(of_rows.values()))


def threats_of_fullest(of_rows: Collection[set[Any]]) -> set[Any]:
    """All threats of the rows that have the most of them; more than any row has if these have different ones."""
    most = max(map(len, of_rows))
    return set().union(*(threats for threats in of_rows if len(threats) == most))


def threat_grids(results: Results) -> list[ThreatGrid]:
    """A grid for each data set, and each combination of swept values of the data, with at least three threats."""
    names = row_names(results.settings)
    by_data: dict[tuple[str, SweptValues], list[Setting]] = {}
    for setting in results.settings:
        by_data.setdefault((setting.data, setting.scenario.data_values), []).append(setting)
    grids = []
    for place, of_data in by_data.items():
        threats = dict.fromkeys(s.scenario.threat_kind for s in of_data if not s.scenario.is_clean)
        settings: dict[tuple[str, float], list[Setting]] = {}
        for setting in of_data:
            settings.setdefault((names[setting], setting.scenario.share), []).append(setting)
        rules = ordered_rows((setting, names[setting]) for setting in of_data)
        shares = sorted({share for _, share in settings})
        grids.append(ThreatGrid(results, *place, rules, list(threats), shares, settings))
    return [grid for grid in grids if grid.most_threats >= MIN_THREATS]


def worst_tables(results: Results) -> list[Table]:
    """A table for each data set with several attacks: each rule's worst mean at each share of the clients."""
    return [_table(grid) for grid in threat_grids(results)]


def _table(grid: ThreatGrid) -> Table:
    results, metric, threats = grid.results, grid.metric, grid.threats
    columns = [Column("Worst", percent(share)) if share else Column("Clean") for share in grid.shares]

    def number(row: str, share: float) -> Number | None:
        worst = grid.worst(row, share)
        of_worst = None if worst is None else final_number(results, worst, metric)
        return of_worst and replace(of_worst, is_partial=grid.is_partial(row, share))

    numbers = lambda row: tuple(number(row, share) for share in grid.shares)
    rows = [Row(row, numbers(row), rule) for row, rule in grid.rules.items()]
    where = f", {format_values(grid.data_values)}" if grid.data_values else ""
    kinds = ("; " if any(threat.values for threat in threats) else ", ").join(threat_name(*t) for t in threats)
    over = draws_text(setting.draws for setting in chain.from_iterable(grid.settings.values()))
    table = Table(
        f"{metric.label} {grid.when}, worst of {grid.most_threats}{where}",
        tuple(columns),
        tuple(rows),
        subtitle=f"the worst mean, and its deviation, over {over}; {results.choice_remark}; best in bold",
        notes=(f"Worst of: {kinds}.",),
    )
    return with_best_in_bold(complete(table, results, grid.data, metric), metric)


def narrow(
    tables: Sequence[Table], results: Results, max_columns: int = MAX_COLUMNS, is_written: bool = True
) -> list[Table]:
    """The tables for a terminal: a worst-case table, where there is one, instead of a table with too many columns.

    A note says where all columns are: in the files of the report if it `is_written`.
    """
    where = "table.md and the figures have" if is_written else "--format markdown shows"
    worst, shown = worst_tables(results), []
    for table in tables:
        note = f"{where} all {len(table.columns)} columns."
        is_same = lambda w, t=table: w.data == t.data and w.title.startswith(f"{t.title}, worst")
        narrower = list(filter(is_same, worst)) if len(table.columns) > max_columns else []
        shown += [replace(other, notes=(*other.notes, note)) for other in narrower] or [table]
    return shown
