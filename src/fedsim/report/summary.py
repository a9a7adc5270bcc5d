"""The numbers of each cell: a row of summary.csv."""

import csv
import io
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fedsim.report.auc import by_run, weight_auc
from fedsim.report.cells import PERCENTILES, Cell, Results
from fedsim.report.measure import BACKDOOR, Measure, measures, with_backdoor
from fedsim.report.settings import text

LAST = 5  # evaluations
REACHED = 0.9  # of the final accuracy


def summary(results: Results) -> list[dict[str, Any]]:
    """One row a cell; None where there is no number. Standard deviations over the seeds, ddof 1."""
    clients = by_run(results.clients, len(results.runs))
    of_data = measures(results.cells)
    backdoor = [BACKDOOR] if with_backdoor(results.cells) else []
    every = [*dict.fromkeys(of_data.values()), *backdoor]
    own = lambda cell: (of_data[cell.data], *backdoor)
    return [_row(cell, own(cell), every, [clients[run] for run in cell.runs]) for cell in results.cells]


def _row(cell: Cell, own: Collection[Measure], every: Sequence[Measure], clients: Sequence[pa.Table]) -> dict[str, Any]:
    """A row with columns of `every` measure; empty but for the cell's `own`."""
    numbers: dict[str, float | None] = {}
    for one in every:
        numbers |= _numbers(cell, one) if one in own else dict.fromkeys(_numbers(cell, one))
    reached = [int(cell.rounds[np.argmax(run >= REACHED * run[-1])]) for run in cell.accuracy if np.isfinite(run[-1])]
    by_client = dict(zip(PERCENTILES, cell.percentiles[:, :, -1], strict=True))
    aucs = [auc for run in clients if (auc := weight_auc(run)) is not None]
    return {
        "data": cell.data,
        "aggregator": cell.aggregator,
        "corruption": cell.corruption,
        "fraction": cell.fraction,
        "attack": cell.attack,
        "lam": cell.lam,
        "settings": text(cell.settings),
        "chosen": text(cell.chosen),
        "final": str(cell.final),
        "num_runs": len(cell.runs),
        "num_diverged": cell.num_diverged,
        **numbers,
        "rounds_to_90_mean": np.mean(reached) if reached else None,
        "weight_auc_mean": np.mean(aucs) if aucs else None,
        "above_f_mean": cell.share_above_f,
        **{f"{name}_mean": None if np.isnan(p).any() else p.mean() for name, p in by_client.items()},
    }


def _numbers(cell: Cell, measure: Measure) -> dict[str, float | None]:
    """What is shown, and over the last evaluations."""
    final, last = measure.final_raw(cell), measure.raw(cell)[:, -LAST:].mean(axis=1)
    return {
        f"final_{measure.name}_mean": mean(final),
        f"final_{measure.name}_std": std(final),
        f"last{LAST}_{measure.name}_mean": mean(last),
        f"last{LAST}_{measure.name}_std": std(last),
    }


def mean(values: np.ndarray) -> float | None:
    """The mean of the numbers among `values`; None where there is none."""
    numbers = values[np.isfinite(values)]
    return float(numbers.mean()) if len(numbers) else None


def final_mean(cell: Cell, measure: Measure) -> float:
    """The mean over seeds, in the unit that is shown; NaN where all runs have diverged."""
    value = mean(measure.final(cell))
    return math.nan if value is None else value


def std(values: np.ndarray) -> float | None:
    """Standard deviation, ddof 1, of the numbers among `values`; None of fewer than two."""
    numbers = values[np.isfinite(values)]
    return float(np.std(numbers, ddof=1)) if len(numbers) > 1 else None


def as_csv(rows: list[dict[str, Any]]) -> str:
    """Rows with the same keys as CSV; numbers with six digits, empty for None."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    return file.getvalue()
