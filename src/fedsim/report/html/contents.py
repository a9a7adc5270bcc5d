"""The data of the page."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fedsim.report.html import axes, clients, commands
from fedsim.report.html.packing import pack_shares
from fedsim.report.line_plots import panel_title
from fedsim.report.metric import METRICS, Metric
from fedsim.report.results import Results
from fedsim.report.rows import row_names
from fedsim.report.settings import PERCENTILES, Setting
from fedsim.report.style import COLORS
from fedsim.report.summary import as_csv, summary

WORST_REMARK = "The worst of an axis is that of the numbers shown."
SHARES = ("corrupted_weight", "byzantine_excess", *PERCENTILES)  # metrics that are packed in 16 bits


def contents(results: Results) -> dict[str, Any]:
    """A document for `packing.pack`: axes, metrics over rounds, weights of clients, commands, and summary.csv.

    Of several splits, metrics are means over the seeds of each split.
    """
    settings = [setting.mean_by_split() for setting in results.settings]
    table = list(csv.reader(io.StringIO(as_csv(summary(results)))))
    recorded = [m for m in METRICS if any(np.isfinite(m.recorded(setting)).any() for setting in settings)]
    return {
        "about": _about(results),
        "colors": COLORS,
        "axes": [axis._asdict() for axis in axes.axes(settings)],
        "settings": _settings(results),
        "rounds": _different_rounds(settings),
        "metrics": [_metric(metric, settings) for metric in recorded],
        "weights": [weights._asdict() for weights in clients.client_weights(results)],
        "summary": {"columns": table[0], "rows": table[1:]},
    }


def _about(results: Results) -> dict[str, Any]:
    texts = {
        "name": [config["name"] for config in results.runs],
        "versions": [_pairs(manifest["versions"]) for manifest in results.manifests],
        "device": [_pairs(manifest["device"]) for manifest in results.manifests],
    }
    return {name: "; ".join(dict.fromkeys(values)) for name, values in texts.items()} | {
        "folders": [str(folder.path) for folder in results.folders],
        "num_runs": len(results.runs),
        "num_repeated": results.num_repeated,
        "incomplete": " ".join(results.incomplete),
        "final": asdict(results.settings[0].final),
        "chosen": " ".join([*results.remarks, *([WORST_REMARK] if results.confirmed else [])]),
    }


def _pairs(values: dict[str, Any] | None) -> str:
    return ", ".join(f"{key} {value}" for key, value in (values or {}).items())


def _metric(metric: Metric, settings: Sequence[Setting]) -> dict[str, Any]:
    """How a metric is shown, and its values in all settings, seed by seed, concatenated."""
    numbers = np.concatenate([metric.recorded(setting).ravel() for setting in settings])
    is_share = metric.name in SHARES
    return {
        "key": metric.name,
        "title": metric.title,
        "unit": metric.unit,
        "scale": metric.scale,
        "digits": metric.digits,
        "higher_is_better": metric.higher_is_better,
        "is_share": is_share,
        "numbers": pack_shares(numbers) if is_share else numbers.astype(np.float32),
    }


def _settings(results: Results) -> list[dict[str, Any]]:
    """The description of each setting; its numbers are in `metrics`, in the order of the settings."""
    lengths = {tuple(rounds): position for position, rounds in enumerate(_different_rounds(results.settings))}
    names = row_names(results.settings).items()
    scenarios = {setting.data_scenario for setting in results.settings}
    titles = {scenario: panel_title(scenario, results.settings) for scenario in scenarios}
    rows = zip(names, commands.commands(results), commands.setting_tomls(results), strict=True)
    return [
        {
            "row": row,
            "scenario": titles[setting.data_scenario],
            "is_clean": setting.scenario.is_clean,
            "over": "seed" if setting.num_splits == 1 else "split",
            "seeds": setting.seeds if setting.num_splits == 1 else list(dict.fromkeys(setting.splits)),
            "num_diverged": setting.num_diverged,
            "rounds": lengths[tuple(setting.rounds.tolist())],  # a position in "rounds"
            "command": command,
            "configuration": configuration,
        }
        for (setting, row), command, configuration in rows
    ]


def _different_rounds(settings: list[Setting]) -> list[list[int]]:
    """The rounds after which settings were evaluated, each list once."""
    return list(map(list, dict.fromkeys(tuple(setting.rounds.tolist()) for setting in settings)))
