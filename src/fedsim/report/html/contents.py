"""The data of the page, and all that the page takes from a report."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from polars import col

from fedsim.report.accuracy import draws_text, final_text
from fedsim.report.compare import over_rounds
from fedsim.report.html.clients import client_weights
from fedsim.report.html.commands import commands, setting_tomls
from fedsim.report.metric import DETECTION, EXCESS, METRICS, Metric
from fedsim.report.names import count, data_name, format_values, percent, threat_name
from fedsim.report.privacy import privacy_notes
from fedsim.report.results import Results
from fedsim.report.rows import ordered_rows, row_names
from fedsim.report.settings import Setting
from fedsim.report.style import looks
from fedsim.report.table import DIVERGED, MEANINGS, SKIPPED
from fedsim.report.worst import threats_of_fullest

CLEAN, WORST = "Clean", "Worst"
MAX_LONG = 1000  # a loss above has two digits
MAX_NUMBERS = 250_000  # in all curves: keeps the page of 2,000 runs below 1.5 MB

Json = dict[str, Any]


def contents(results: Results) -> Json:
    """What `static/page.js` shows; None for NaN.

    Means, deviations and bands are over splits, each the mean of its seeds, or over the seeds of one split.
    """
    names = row_names(results.settings)
    rules = ordered_rows(names.items())
    threats = list(dict.fromkeys(map(_threat, results.settings)))
    data = list(dict.fromkeys(map(_data, results.settings)))
    order = lambda s: (data.index(_data(s)), not s.scenario.is_clean, s.scenario.share, threats.index(_threat(s)))
    settings = sorted(results.settings, key=order)
    is_recorded = results.table.select(col(metric.column).is_finite().any() for metric in METRICS)
    curved = [metric for metric in METRICS if is_recorded[metric.column].item()] or [METRICS[0]]
    results = replace(results, settings=settings)
    metrics = [*curved, *(metric for metric in DETECTION if results.detection[metric.column].count())]
    columns = zip(commands(results), setting_tomls(results), client_weights(results), strict=True)
    max_evaluations = max(MAX_NUMBERS // (3 * len(curved) * len(settings)), 10)
    curves = {m.name: over_rounds(results.table, m).partition_by("setting", as_dict=True) for m in curved}
    described = [
        _describe(results, setting, metrics, curves, max_evaluations)
        | {"row": names[setting], "command": command, "toml": toml, "weights": weights}
        for setting, (command, toml, weights) in zip(settings, columns, strict=True)
    ]
    for entry in described:
        parts = entry["data"] if len(data) > 1 else "", entry["threat"], entry["share"]
        entry["scenario"] = " ".join(filter(None, parts))
    is_one = all(len(setting.runs) == 1 for setting in settings)
    spread = "one seed" if is_one else f"mean ± standard deviation over {draws_text(s.draws for s in settings)}"
    whens = dict.fromkeys(metrics, final_text(settings, results.final))
    whens |= dict.fromkeys(DETECTION, "over the second half of the rounds") | {EXCESS: "over all rounds"}
    notes = [*results.remarks, *results.notes, *privacy_notes(results, names)]
    texts = "".join(number["text"] for entry in described for number in entry["final"].values())
    notes += [f"{mark}: {meaning}." for mark, meaning in MEANINGS.items() if mark in texts]
    return {
        "title": results.name,
        "facts": _facts(results),
        "notes": notes,
        "unit": "split" if any(len(setting.splits) > 1 for setting in settings) else "seed",
        "metrics": [
            {"key": m.name, "label": m.label, "higher": m.higher_is_better, "log": not m.is_percentage}
            | {"how": f"{spread}, {whens[m]}"}
            for m in metrics
        ],
        "rows": list(rules),
        "colors": {row: look["color"] for row, look in zip(rules, looks([*rules.values()]), strict=True)},
        "threats": [threat for threat in threats if threat != CLEAN],
        "shares": list(map(percent, sorted({s.scenario.share for s in settings if not s.scenario.is_clean}))),
        "data": data,
        "settings": described,
        "choice": results.choice_remark,
        "worst": {metric.name: _worst(described, metric, results) for metric in metrics},
    }


def _threat(setting: Setting) -> str:
    return CLEAN if setting.scenario.is_clean else threat_name(*setting.scenario.threat_kind)


def _data(setting: Setting) -> str:
    return ", ".join(filter(None, (data_name(setting.data), format_values(setting.scenario.data_values))))


def _describe(
    results: Results, setting: Setting, metrics: Sequence[Metric], curves: Json, max_evaluations: int
) -> Json:
    """A setting; its `curves` (by metric and setting) are means, with the lowest and highest if it has several runs."""
    (split, seed), *_ = setting.draws
    positions = np.linspace(0, len(setting.rounds) - 1, max_evaluations)
    shown = [setting.rounds[position] for position in sorted({*np.rint(positions).astype(int)})]
    names = ("mean", "low", "high") if len(setting.runs) > 1 else ("mean",)
    points = {key: of[setting.position,].filter(col("round").is_in(shown)) for key, of in curves.items()}
    four_digits = lambda number: None if number is None else float(f"{number:.4g}")
    return {
        "data": _data(setting),
        "threat": _threat(setting),
        "share": "" if setting.scenario.is_clean else percent(setting.scenario.share),
        "runs": len(setting.runs),
        "diverged": results.number(setting)["num_diverged"],
        "draw": f"split {split}, seed {seed}" if len(setting.splits) > 1 else f"seed {seed}",
        "rounds": shown,
        "evaluations": len(setting.rounds),
        "final": {metric.name: _final(results.number(setting, metric), metric) for metric in metrics},
        "curves": {key: [list(map(four_digits, of[name])) for name in names] for key, of in points.items()},
    }


def _final(number: Json, metric: Metric) -> Json:
    """The number of a setting; its texts for the heat map and the table, with a mark: – not measured."""
    center, deviation = number["mean"], number["std"]
    mark = DIVERGED if number["num_diverged"] else SKIPPED if number["num_skipped"] else "–" if center is None else ""
    in_full = lambda number, digits: f"{number:.1e}" if number >= MAX_LONG else f"{number:.{digits}f}"
    text = lambda digits: ("" if center is None else in_full(center, digits)) + mark
    spread = lambda digits: "" if deviation is None else f"± {in_full(deviation, digits)}"
    few, exact = metric.digits - 1, f"{text(metric.digits)} {spread(metric.digits)}".strip()
    return {"mean": center, "short": text(few), "deviation": spread(few), "text": exact}


def _worst(described: Sequence[Json], metric: Metric, results: Results) -> list[Json]:
    """The cells of the worst of several threats, as in worst.md."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for position, entry in enumerate(described):
        if entry["threat"] != CLEAN and entry["final"][metric.name]["text"] != "–":
            groups.setdefault((entry["row"], entry["share"], entry["data"]), []).append(position)
    of_rows: dict[tuple[str, ...], list[set[str]]] = {}  # threats of each row, by share and data
    for (_, *column), positions in groups.items():
        of_rows.setdefault((*column,), []).append({described[position]["threat"] for position in positions})
    cells = []
    for (row, share, data), positions in groups.items():
        at = max(positions, key=lambda position: results.badness(results.settings[position], metric))
        among = {"among": len(positions), "most": len(threats_of_fullest(of_rows[share, data]))}
        cells.append({"row": row, "threat": WORST, "share": share, "data": data, "setting": at, **among})
    return cells


def _facts(results: Results) -> str:
    """What was computed, for the head of the page."""

    def span(every: Iterable[int | None], noun: str) -> str:
        values = sorted({value for value in every if value is not None})
        if len(values) > 1:
            return f"{values[0]} to {values[-1]} {noun}s"
        return count(values[0], noun) if values else ""

    latest = results.groups[0].record.environments[-1]
    versions, device = latest["versions"], latest["device"] or {}
    repeated = f" ({results.num_repeated} repeated ones left out)" if results.num_repeated else ""
    facts = [
        " and ".join(dict.fromkeys(data_name(setting.data) for setting in results.settings)),
        span((run.num_clients or run.keys["data.num_clients"] for _, run in results.sources), "client"),
        span((run["server.num_rounds"] for run in results.runs), "round"),
        count(sum(len(setting.runs) for setting in results.settings), "run") + repeated,
        *(f"{name} {versions[name]}" for name in ("fedsim", "jax") if name in versions),
        str(device.get("kind", "")),
    ]
    return " · ".join(filter(None, facts))
