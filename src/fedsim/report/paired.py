"""Differences of each rule to a reference, seed by seed.

Runs with the same seed share the initial model, the corrupted clients, the cohorts and the batches, whatever the rule.
So the difference of two rules varies far less over the seeds than either of them, and it is by its interval (Student's
t on the differences) that they are compared.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsim.errors import ConfigError
from fedsim.report.cells import Cell, Results, data_sets
from fedsim.report.names import aggregator_name, row_names
from fedsim.report.settings import section, text
from fedsim.report.table import Entry, Table, after, tabulate

REFERENCE = "arfl"
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """A cell minus its reference, over the seeds that both have."""

    cell: Cell
    reference: Cell
    seeds: tuple[int, ...]  # [S]
    values: np.ndarray  # [S] final test accuracy, percentage points
    num_diverged: int  # pairs of which a run has diverged

    @property
    def mean(self) -> float:
        """Percentage points."""
        return float(self.values.mean())

    @property
    def half_width(self) -> float | None:
        """Half of the confidence interval of the mean, percentage points; None with one seed."""
        from scipy.stats import t  # type: ignore[import-untyped]

        number = len(self.values)
        if number < 2:
            return None
        return float(t.ppf((1 + CONFIDENCE) / 2, number - 1) * np.std(self.values, ddof=1) / np.sqrt(number))


def differences(results: Results, to: str = REFERENCE) -> list[Difference]:
    """Each cell of another rule minus the cells of rule `to` in its scenario, with its settings and a common seed.

    Settings of a rule's own section need not agree. `ConfigError` where there is no run of `to`.
    """
    rules = list(dict.fromkeys(cell.aggregator for cell in results.cells))
    if to not in rules:
        raise ConfigError(f"--to: no runs of {to}; there are {', '.join(rules)}")
    pairs = [
        (cell, reference)
        for cell in results.cells
        for reference in results.cells
        if cell.aggregator != to and reference.aggregator == to and _place(cell) == _place(reference)
    ]
    return [found for cell, reference in pairs if (found := _difference(cell, reference)) is not None]


def _place(cell: Cell) -> tuple[Any, ...]:
    common = tuple((key, value) for key, value in cell.settings if section(key) != cell.aggregator)
    return cell.data, cell.corruption, cell.fraction, common


def _difference(cell: Cell, reference: Cell) -> Difference | None:
    values, seeds, num_diverged = [], [], 0
    for mine, seed in enumerate(cell.seeds):
        if seed in reference.seeds:
            other = reference.seeds.index(seed)
            value = 100 * (cell.accuracy[mine, -1] - reference.accuracy[other, -1])
            if np.isfinite(value):
                values.append(value)
                seeds.append(seed)
                num_diverged += bool(cell.diverged[mine, -1] or reference.diverged[other, -1])
    return Difference(cell, reference, tuple(seeds), np.asarray(values), num_diverged) if seeds else None


def paired_tables(results: Results, to: str = REFERENCE) -> list[Table]:
    """The mean differences with their intervals, a table a data set."""
    found = differences(results, to)
    return [
        _table(results, [d for d in found if d.cell.data == data], to) for data in data_sets([d.cell for d in found])
    ]


def _table(results: Results, found: list[Difference], to: str) -> Table:
    names = dict(zip(map(id, results.cells), row_names(results.cells), strict=True))
    shared = {key for cell in results.cells for key, _ in cell.settings if section(key) != to}
    references = dict(zip(map(id, results.cells), row_names(results.cells, without=shared), strict=True))
    several = len({id(d.cell) for d in found}) < len(found)  # references of a cell: name them
    named = [(names[id(d.cell)] + several * f" − {references[id(d.reference)]}", d.cell, _entry(d)) for d in found]
    numbers = {len(d.seeds) for d in found}
    seeds = f"{max(numbers)} seeds" if len(numbers) == 1 else f"up to {max(numbers)} seeds"
    reference = aggregator_name(to)
    title = f"Difference to {reference} in test accuracy (percentage points) {after(d.cell for d in found)}"
    spread = f"mean ± half of its {100 * CONFIDENCE:.0f} % t-interval over {seeds}, in bold where that leaves out 0"
    subtitle = f"rule − {reference}, seed by seed: {spread if max(numbers) > 1 else 'one seed'}"
    return replace(tabulate(title, subtitle, named), signed=True)


def _entry(d: Difference) -> Entry:
    half = d.half_width
    return Entry(d.mean, half, half is not None and abs(d.mean) > half, len(d.seeds), d.num_diverged)


def paired_rows(found: list[Difference]) -> list[dict[str, Any]]:
    """One row a difference, for paired.csv; None without an interval."""
    return [_row(d) for d in found]


def _row(d: Difference) -> dict[str, Any]:
    half = d.half_width
    return {
        "data": d.cell.data,
        "aggregator": d.cell.aggregator,
        "reference": d.reference.aggregator,
        "corruption": d.cell.corruption,
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
