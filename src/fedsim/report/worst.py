"""What is left of each rule under the worst of several attacks."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from fedsim.report.accuracy import closing_notes, draws_text, final_number, final_text
from fedsim.report.metric import Metric
from fedsim.report.names import SweptValues, data_name, format_values, percent, threat_name
from fedsim.report.results import Results
from fedsim.report.rows import ordered_rows, row_names
from fedsim.report.settings import Setting, Threat
from fedsim.report.table import Column, Row, Table, mark_notes, with_best_in_bold

MIN_THREATS = 3  # that make a comparison
MAX_COLUMNS = 9  # of a table in a terminal


class ThreatGrid(NamedTuple):
    """The settings of a data set by row, by threat and by the share of corrupted or malicious clients.

    If keys of the data were swept, those with one value of each.
    """

    results: Results
    data: str
    data_values: SweptValues
    metric: Metric
    rules: dict[str, str]
    """The rule of each row, in their order."""
    threats: list[Threat]
    shares: list[float]
    settings: dict[tuple[str, Threat, float], list[Setting]]
    """Several if the corrupted clients attack in one, and malicious clients of their own in another."""
    clean: dict[str, Setting]
    """By row."""

    def final(self, setting: Setting | None) -> float:
        """The mean over splits or seeds; NaN: no such runs, or all have diverged."""
        center = None if setting is None else self.results.number(setting, self.metric)["mean"]
        return math.nan if center is None else center

    @property
    def all_settings(self) -> list[Setting]:
        """Those with corrupted or malicious clients."""
        return list(chain.from_iterable(self.settings.values()))

    def worst(self, row: str, share: float, threat: Threat | None = None) -> Setting | None:
        """The setting of the worst mean at this share, under the `threat` or any.

        One with runs that have diverged is worse than any without.
        """
        threats = self.threats if threat is None else [threat]
        settings = chain.from_iterable(self.settings.get((row, threat, share), []) for threat in threats)
        return max(settings, key=lambda setting: self.results.badness(setting, self.metric), default=None)

    def worst_by_share(self, row: str) -> list[Setting | None]:
        """The clean setting, if any row has one, and the worst at each share."""
        clean = [self.clean.get(row)] if self.clean else []
        return clean + [self.worst(row, share) for share in self.shares]


def threat_grids(results: Results) -> list[ThreatGrid]:
    """A grid for each data set, and each combination of swept values of the data, with at least three threats."""
    names = row_names(results.settings)
    grids = []
    for data, values in dict.fromkeys((s.data, s.scenario.data_values) for s in results.settings):
        data_settings = [s for s in results.settings if (s.data, s.scenario.data_values) == (data, values)]
        corrupted = [setting for setting in data_settings if not setting.scenario.is_clean]
        threats = list(dict.fromkeys(setting.scenario.threat_kind for setting in corrupted))
        if len(threats) >= MIN_THREATS:
            settings: dict[tuple[str, Threat, float], list[Setting]] = {}
            for s in corrupted:
                settings.setdefault((names[s], s.scenario.threat_kind, s.scenario.share), []).append(s)
            clean = {names[setting]: setting for setting in data_settings if setting.scenario.is_clean}
            shares = sorted({setting.scenario.share for setting in corrupted})
            rule_of = {names[setting]: setting.aggregator for setting in data_settings}
            rules = {row: rule_of[row] for row in ordered_rows((s, names[s]) for s in data_settings)}
            grids.append(
                ThreatGrid(results, data, values, results.metric(data), rules, threats, shares, settings, clean)
            )
    return grids


def worst_tables(results: Results) -> list[Table]:
    """A table for each data set with several attacks: each rule's worst mean at each share of the clients."""
    return [_table(grid) for grid in threat_grids(results)]


def _table(grid: ThreatGrid) -> Table:
    columns = [Column("Clean")] if grid.clean else []
    columns += [Column("Worst", percent(share)) for share in grid.shares]
    rows = []
    for row, rule in grid.rules.items():
        shown = grid.worst_by_share(row)
        entries = tuple(
            None if setting is None else final_number(grid.results, setting, grid.metric) for setting in shown
        )
        rows.append(Row(row, entries, rule))
    has_values = any(threat.values for threat in grid.threats)
    kinds = ("; " if has_values else ", ").join(threat_name(*threat) for threat in grid.threats)
    where = f", {format_values(grid.data_values)}" if grid.data_values else ""
    table = Table(
        f"{grid.metric.label} {final_text(grid.all_settings, grid.results.final)}, worst of {len(grid.threats)}{where}",
        tuple(columns),
        tuple(rows),
        data=data_name(grid.data),
        subtitle=f"the worst mean, and its deviation, over {draws_text(s.draws for s in grid.all_settings)}; "
        f"{grid.results.choice_remark}; best in bold",
        notes=(
            f"Worst of: {kinds}.",
            *mark_notes(columns, rows),
            *closing_notes(grid.results, grid.data, grid.metric),
        ),
        digits=grid.metric.digits,
    )
    return with_best_in_bold(table, grid.metric)


def narrow(
    tables: Sequence[Table], results: Results, max_columns: int = MAX_COLUMNS, is_written: bool = True
) -> list[Table]:
    """The tables for a terminal: a worst-case table, where there is one, instead of a table with too many columns.

    A note says where all columns are: in the files of the report if it `is_written`.
    """
    worst = worst_tables(results)
    shown = []
    for table in tables:
        is_narrower = lambda other, table=table: (
            other.data == table.data and other.title.startswith(f"{table.title}, worst")
        )
        narrower = list(filter(is_narrower, worst)) if len(table.columns) > max_columns else []
        where = "table.md and the figures have" if is_written else "--format markdown shows"
        note = f"{where} all {len(table.columns)} columns."
        shown += [replace(other, notes=(*other.notes, note)) for other in narrower] or [table]
    return shown
