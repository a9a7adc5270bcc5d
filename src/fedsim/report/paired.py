"""Tables of the differences of each rule to a baseline, run by run."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedsim.errors import ConfigError
from fedsim.report import compare
from fedsim.report.accuracy import complete, draws_text, final_text, tabulate
from fedsim.report.compare import Difference, finals
from fedsim.report.keys import SHARED_F
from fedsim.report.names import aggregator_name, format_values, labels, scenario_name
from fedsim.report.results import BASELINE, Results
from fedsim.report.rows import row_names
from fedsim.report.settings import Scenario, Setting
from fedsim.report.statistics import CONFIDENCE, holm
from fedsim.report.table import Number, Table


def find_rule(results: Results, rule: str) -> str | None:
    """The name in the results of `rule`, which may be given as there or as in a configuration; None: no runs."""
    file, _, name = rule.rpartition(":")
    names = {setting.aggregator for setting in results.settings}
    return next((shown for shown in (rule, f"{name} ({file})", labels([rule])[rule]) if shown in names), None)


def differences(results: Results, baseline: str = BASELINE) -> list[Difference]:
    """Each setting of another rule minus the settings of the rule `baseline` in its scenario, with a common draw.

    Swept values must agree, except those in a rule's own section, and so must the last evaluations. Raises
    `ConfigError` if there is no run of `baseline`.
    """
    rule = find_rule(results, baseline)
    if rule is None:
        rules = ", ".join(dict.fromkeys(setting.aggregator for setting in results.settings))
        raise ConfigError(f"--baseline: must be one of {rules}, got {baseline}")
    pairs, every = _pairs(results, rule), []
    for key in dict.fromkeys(results.table_key(setting) for setting, _ in pairs):
        values = finals(results.table, key[1], results.final)
        of_table = compare.differences(values, [pair for pair in pairs if results.table_key(pair[0]) == key])
        corrected = holm([d.p_value for d in of_table])
        every += [replace(d, corrected_p=float(p)) for d, p in zip(of_table, corrected, strict=True)]
    return every


def _pairs(results: Results, rule: str) -> list[tuple[Setting, Setting]]:
    """The settings of other rules, each with a setting of `rule` in its scenario, that may be compared."""
    baselines = _by_scenario(results, rule)
    return [
        (setting, reference)
        for setting in results.settings
        if setting.aggregator != rule
        for reference in baselines.get(setting.scenario, [])
        if not _differing(setting, reference)
    ]


def _by_scenario(results: Results, rule: str | None) -> dict[Scenario, list[Setting]]:
    """The settings of `rule`."""
    settings: dict[Scenario, list[Setting]] = {}
    for setting in results.settings:
        if setting.aggregator == rule:
            settings.setdefault(setting.scenario, []).append(setting)
    return settings


def _differing(setting: Setting, reference: Setting) -> set[str]:
    """In what the training of two settings differs, so that they are not compared."""
    values, others = dict(setting.shared_values), dict(reference.shared_values)
    keys = {key for key in values.keys() | others.keys() if values.get(key) != others.get(key)}
    if SHARED_F in keys and not {SHARED_F} <= values.keys() & others.keys():  # one of the rules assumes no number
        keys.remove(SHARED_F)
    return keys or ({"last evaluation"} if setting.rounds[-1] != reference.rounds[-1] else set())


def unpaired_notes(results: Results, baseline: str = BASELINE) -> list[str]:
    """Which rules have no difference in a scenario of `baseline`, and why."""
    rule, names = find_rule(results, baseline), row_names(results.settings)
    compared, references = {d.setting for d in differences(results, baseline)}, _by_scenario(results, rule)
    rows: dict[str, dict[str, None]] = {}  # by the reason
    for setting in results.settings:
        if setting.aggregator != rule and setting not in compared and setting.scenario in references:
            reason = _why_unpaired(setting, references[setting.scenario])
            rows.setdefault(reason, {})[names[setting]] = None
    shown = aggregator_name(rule or baseline)
    return [f"no difference to {shown}, {reason}: {'; '.join(of)}" for reason, of in rows.items()]


def _why_unpaired(setting: Setting, references: Sequence[Setting]) -> str:
    """Why a setting has no difference to those of the baseline in its scenario."""
    differing = {reference: sorted(_differing(setting, reference)) for reference in references}
    if all(differing.values()):
        fewest = min(differing.values(), key=len)
        return f"which has another {', '.join(fewest)}"
    has_common = any({*setting.draws} & {*reference.draws} for reference, keys in differing.items() if not keys)
    return "since all pairs of runs have diverged" if has_common else "which has other seeds"


def paired_tables(results: Results, baseline: str = BASELINE) -> list[Table]:
    """The mean differences with their intervals, a table a data set."""
    every = differences(results, baseline)
    keys = dict.fromkeys(results.table_key(d.setting) for d in every)
    return [_table(results, [d for d in every if results.table_key(d.setting) == key]) for key in keys]


def _table(results: Results, every: Sequence[Difference]) -> Table:
    """The table of the differences of one data set."""
    baseline, metric = every[0].baseline.aggregator, results.metric(every[0].setting)
    names = row_names(results.settings)
    agreeing = {key for d in every for key, _ in d.baseline.shared_values} - {SHARED_F}
    baselines = row_names(results.settings, without=agreeing)
    has_several = len({d.setting for d in every}) < len(every)  # baselines of a setting: name them
    row = lambda d: f"{names[d.setting]} − {baselines[d.baseline]}" if has_several else names[d.setting]
    shown, unit = aggregator_name(baseline), " (percentage points)" if metric.is_percentage else ""
    when = final_text([d.setting for d in every], results.final)
    title = f"Difference to {shown} in {metric.title.lower()}{unit} {when}"
    spread = f"mean over {draws_text(d.draws for d in every)}"
    if num_tests := sum(math.isfinite(d.corrected_p) for d in every):
        corrected = f" after Holm's correction for {num_tests} comparisons" if num_tests > 1 else ""
        bold = f"in bold if significant at {100 * (1 - CONFIDENCE):.0f} %{corrected}"
        spread = f"{spread.replace('mean', f'mean ± half of its {100 * CONFIDENCE:.0f} % t-interval')}, {bold}"
    entries = [(row(d), d.setting, _number(d)) for d in every]
    table = tabulate(title, f"rule − {shown}, run by run: {spread}", entries)
    untested = _untested([(f"{row(d)}, {scenario_name(d.setting.scenario)}", d) for d in every])
    return replace(complete(table, results, every[0].setting.data, metric, untested), signed=True)


def _untested(named: Sequence[tuple[str, Difference]]) -> list[str]:
    """Which differences have neither an interval nor a test, and why."""
    places: dict[str, list[str]] = {}
    for place, difference in named:
        if reason := difference.no_test:
            places.setdefault(reason, []).append(place)
    which = lambda of: "; ".join(of) if len(of) < len(named) else "all numbers"
    return [f"No interval and no test, {reason}: {which(of)}." for reason, of in places.items()]


def _number(d: Difference) -> Number:
    is_bold = d.corrected_p < 1 - CONFIDENCE and not d.num_diverged and not d.num_skipped
    return Number(d.mean, d.half_width, is_bold, d.num_runs, d.num_diverged, d.num_skipped)


def paired_rows(results: Results, every: Sequence[Difference]) -> list[dict[str, Any]]:
    """One row a difference, for paired.csv; accuracies from 0 to 1, None without an interval."""
    rows = []
    for d in every:
        setting, baseline, half, scale = d.setting, d.baseline, d.half_width, results.metric(d.setting).scale
        row = {
            "data": setting.data,
            "aggregator": setting.aggregator,
            "reference": baseline.aggregator,
            **{name: getattr(setting, name) for name in ("corruption", "attack", "attack_fraction", "fraction", "lam")},
            "reference_lam": baseline.lam,
            "settings": format_values(setting.swept_values),
            "reference_settings": format_values(baseline.swept_values),
            "num_splits": len({split for split, _ in d.draws}),
            "num_runs": len(d.draws),
            "difference_mean": d.mean / scale,
            "difference_low": None if half is None else (d.mean - half) / scale,
            "difference_high": None if half is None else (d.mean + half) / scale,
            "p": d.p_value,
            "p_holm": None if math.isnan(d.corrected_p) else d.corrected_p,
        }
        rows.append(row)
    return rows
