"""The numbers of each setting: a row of summary.csv."""

from typing import Any

from fedsim.report.metric import BACKDOOR, DETECTION, EXCESS, OF_CLIENTS, Metric
from fedsim.report.names import format_values
from fedsim.report.privacy import largest_epsilons
from fedsim.report.results import Results
from fedsim.report.settings import Setting
from fedsim.runs.privacy import EPSILONS

FIELDS = ("data", "aggregator", "corruption", "fraction", "attack", "attack_fraction", "lam")


def summary(results: Results) -> list[dict[str, Any]]:
    """One row a setting; None if there is no number. Means and deviations (ddof 1) are over splits, or seeds of one.

    It has columns of all metrics, empty for those that do not apply.
    """
    largest, _ = largest_epsilons(results, {setting: setting for setting in results.settings})
    metrics = dict.fromkeys(map(results.metric, results.settings))
    backdoor = [BACKDOOR] if results.with_backdoor else []
    rows = []
    for setting in results.settings:
        counts = results.number(setting)
        numbers: dict[str, float | None] = {}
        for metric in (*metrics, *backdoor):
            is_shown = metric in (BACKDOOR, results.metric(setting))
            for name in ("mean", "std"):
                value = _number(results, setting, metric, name) if is_shown else None
                numbers[f"final_{metric.name}_{name}"] = value
        means = {f"{m.name}_mean": _number(results, setting, m, "mean") for m in (*DETECTION, EXCESS, *OF_CLIENTS)}
        rows.append(
            {
                **{name: getattr(setting, name) for name in FIELDS},
                "settings": format_values(setting.swept_values),
                "chosen": format_values(setting.chosen),
                "final": str(results.final),
                **{name: counts[name] for name in ("num_splits", "num_runs", "num_diverged", "num_skipped")},
                **numbers,
                **means,
                **({name: largest.get(setting, {}).get(name) for name in EPSILONS} if largest else {}),
            }
        )
    return rows


def _number(results: Results, setting: Setting, metric: Metric, name: str) -> float | None:
    """The "mean" or "std" of a metric as it is recorded."""
    value = results.number(setting, metric)[name]
    return None if value is None else value / metric.scale
