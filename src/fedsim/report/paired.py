"""Differences of each rule to a reference, seed by seed.

Runs with the same seed share the initial model, the corrupted clients, the cohorts and the batches, whatever the rule.
So the difference of two rules varies far less over the seeds than either of them, and it is by its interval (Student's
t on the differences) that they are compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fedsim.errors import ConfigError
from fedsim.report.cells import Cell, Place, Results, data_sets
from fedsim.report.interval import CONFIDENCE, half_width
from fedsim.report.measure import Measure, measures
from fedsim.report.names import aggregator_name, section_of, short
from fedsim.report.rows import row_names
from fedsim.report.settings import Settings, section, text
from fedsim.report.table import Number, Placed, Table, after, seeds, tabulate

REFERENCE = "arfl"


@dataclass(frozen=True)
class Difference:
    """A cell minus its reference, over the seeds that both have."""

    cell: Cell
    reference: Cell
    measure: Measure
    seeds: tuple[int, ...]  # [S]
    values: np.ndarray  # [S] of what is shown, in percentage points of the accuracy or in units of the loss
    num_diverged: int  # pairs of which a run has diverged

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return float(self.values.mean())

    @property
    def half_width(self) -> float | None:
        """Half of the confidence interval of the mean; None with one seed."""
        return half_width(self.values)


class Circumstances(NamedTuple):
    """What a cell and its reference have in common."""

    place: Place
    settings: Settings  # those of the rule's own section left out


def shown_rule(results: Results, rule: str) -> str | None:
    """How `rule` is called in the results, whether it is given as there or as in a configuration; None: no runs."""
    return next((cell.aggregator for cell in results.cells if cell.aggregator in (rule, short(rule))), None)


def differences(results: Results, to: str = REFERENCE) -> list[Difference]:
    """Each cell of another rule minus the cells of rule `to` in its scenario, with its settings and a common seed.

    Settings of a rule's own section need not agree. `ConfigError` where there is no run of `to`.
    """
    rule = shown_rule(results, to)
    if rule is None:
        rules = dict.fromkeys(cell.aggregator for cell in results.cells)
        raise ConfigError(f"--to: no runs of {to}; there are {', '.join(rules)}")
    references = [cell for cell in results.cells if cell.aggregator == rule]
    measure_of = measures(results.cells)
    pairs = [
        difference(cell, reference, measure_of[cell.data])
        for cell in results.cells
        for reference in references
        if cell.aggregator != rule and _circumstances(cell) == _circumstances(reference)
    ]
    return [pair for pair in pairs if pair is not None]


def _circumstances(cell: Cell) -> Circumstances:
    of_rule = section_of(cell.aggregator)
    return Circumstances(cell.place, tuple((key, value) for key, value in cell.settings if section(key) != of_rule))


def difference(cell: Cell, reference: Cell, measure: Measure) -> Difference | None:
    """A cell minus another, seed by seed; None where no seed has both numbers."""
    values, common, num_diverged = [], [], 0
    mine, others = measure.final_raw(cell), measure.final_raw(reference)
    for position, seed in enumerate(cell.seeds):
        if seed in reference.seeds:
            other = reference.seeds.index(seed)
            value = measure.scale * (mine[position] - others[other])
            if np.isfinite(value):
                values.append(value)
                common.append(seed)
                num_diverged += bool(cell.diverged[position, -1] or reference.diverged[other, -1])
    return Difference(cell, reference, measure, tuple(common), np.asarray(values), num_diverged) if common else None


def paired_tables(results: Results, to: str = REFERENCE) -> list[Table]:
    """The mean differences with their intervals, a table a data set."""
    every = differences(results, to)
    of_data = {data: [d for d in every if d.cell.data == data] for data in data_sets(d.cell for d in every)}
    return [_table(results, of_one) for of_one in of_data.values()]


def _table(results: Results, every: Sequence[Difference]) -> Table:
    """The table of the differences of one data set."""
    to, measure = every[0].reference.aggregator, every[0].measure
    names = dict(zip(results.cells, row_names(results.cells), strict=True))
    shared = {key for cell in results.cells for key, _ in cell.settings if section(key) != section_of(to)}
    references = dict(zip(results.cells, row_names(results.cells, without=shared), strict=True))
    has_several = len({d.cell for d in every}) < len(every)  # references of a cell: name them
    row = lambda d: f"{names[d.cell]} − {references[d.reference]}" if has_several else names[d.cell]
    reference, most = aggregator_name(to), max(len(d.seeds) for d in every)
    title = f"Difference to {reference} in {measure.title.lower()}{measure.unit_of_difference}"
    over = f"over {seeds(len(d.seeds) for d in every)}, in bold where that leaves out 0"
    spread = f"mean ± half of its {100 * CONFIDENCE:.0f} % t-interval {over}" if most > 1 else "one seed"
    subtitle = f"rule − {reference}, seed by seed: {spread}"
    placed = [Placed(row(d), d.cell, _number(d)) for d in every]
    table = tabulate(f"{title} {after(d.cell for d in every)}", subtitle, placed)
    return replace(table, signed=True, digits=measure.digits, notes=(*table.notes, *results.incomplete))


def _number(d: Difference) -> Number:
    half = d.half_width
    return Number(d.mean, half, half is not None and abs(d.mean) > half, len(d.seeds), d.num_diverged)


def paired_rows(every: Sequence[Difference]) -> list[dict[str, Any]]:
    """One row a difference, for paired.csv; None without an interval."""
    return [_row(d) for d in every]


def _row(d: Difference) -> dict[str, Any]:
    half = d.half_width
    return {
        "data": d.cell.data,
        "aggregator": d.cell.aggregator,
        "reference": d.reference.aggregator,
        "corruption": d.cell.corruption,
        "attack": d.cell.attack,
        "fraction": d.cell.fraction,
        "lam": d.cell.lam,
        "reference_lam": d.reference.lam,
        "settings": text(d.cell.settings),
        "reference_settings": text(d.reference.settings),
        "num_seeds": len(d.seeds),
        "difference_mean": d.mean,
        "difference_low": None if half is None else d.mean - half,
        "difference_high": None if half is None else d.mean + half,
    }
