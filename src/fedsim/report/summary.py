"""The numbers of each setting: a row of summary.csv."""

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from fedsim.report.auc import by_run, weight_auc
from fedsim.report.metric import BACKDOOR, Metric, metrics_by_data, with_backdoor
from fedsim.report.names import format_values
from fedsim.report.results import Results
from fedsim.report.settings import PERCENTILES, Setting
from fedsim.report.statistics import mean, split_means, std


def summary(results: Results) -> list[dict[str, Any]]:
    """One row a setting; None if there is no number. Means and deviations (ddof 1) are over splits, or seeds of one."""
    clients = by_run(results.clients, len(results.runs))
    metric_of = metrics_by_data(results.settings)
    backdoor = [BACKDOOR] if with_backdoor(results.settings) else []
    rows = []
    for setting in results.settings:
        applies = {metric: metric == metric_of[setting.data] for metric in metric_of.values()} | dict.fromkeys(
            backdoor, True
        )
        rows.append(_row(setting, applies, [clients[run] for run in setting.runs]))
    return rows


def _row(setting: Setting, applies: dict[Metric, bool], clients: Sequence[pl.DataFrame]) -> dict[str, Any]:
    """A row with columns of all metrics, empty for those that do not apply."""
    numbers: dict[str, float | None] = {}
    for metric, is_shown in applies.items():
        metric_numbers = _numbers(setting, metric)
        numbers |= metric_numbers if is_shown else dict.fromkeys(metric_numbers)
    percentiles = {name: getattr(setting, name)[:, -1] for name in PERCENTILES}
    aucs = [auc for run_clients in clients if (auc := weight_auc(run_clients)) is not None]
    return {
        "data": setting.data,
        "aggregator": setting.aggregator,
        "corruption": setting.corruption,
        "fraction": setting.fraction,
        "attack": setting.attack,
        "attack_fraction": setting.attack_fraction,
        "lam": setting.lam,
        "settings": format_values(setting.swept_values),
        "chosen": format_values(setting.chosen),
        "final": str(setting.final),
        "num_splits": setting.num_splits,
        "num_runs": len(setting.runs),
        "num_diverged": setting.num_diverged,
        "num_skipped": setting.num_skipped,
        **numbers,
        "weight_auc_mean": np.mean(aucs) if aucs else None,
        "byzantine_excess_mean": setting.mean_byzantine_excess,
        **{f"{name}_mean": None if np.isnan(p).any() else p.mean() for name, p in percentiles.items()},
    }


def _numbers(setting: Setting, metric: Metric) -> dict[str, float | None]:
    """The evaluations that are shown."""
    final = split_means(metric.final_recorded(setting), setting.splits)
    return {f"final_{metric.name}_mean": mean(final), f"final_{metric.name}_std": std(final)}


def as_csv(rows: list[dict[str, Any]]) -> str:
    """Rows with the same keys as CSV; numbers with six digits, empty for None."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    return file.getvalue()
