"""Differences of each rule to a baseline, run by run.

Runs with the same split and seed share the data, the initial model, the corrupted clients, the cohorts and the batches,
whatever the rule. So the difference of two rules varies far less than either of them, and rules are compared by its
interval (Student's t on the differences, over splits or over the seeds of one split).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsim.errors import ConfigError
from fedsim.report.accuracy import TableEntry, closing_notes, draws_text, final_text, tabulate
from fedsim.report.metric import Metric, metrics_by_data
from fedsim.report.names import aggregator_name, format_values, labels, scenario_name
from fedsim.report.results import BASELINE, Results
from fedsim.report.rows import row_names
from fedsim.report.settings import Setting, data_sets
from fedsim.report.statistics import CONFIDENCE, half_width, holm, no_test, p_value, split_means
from fedsim.report.table import Number, Table


@dataclass(frozen=True)
class Difference:
    """A setting minus its baseline, over the splits and seeds that both have."""

    setting: Setting
    baseline: Setting
    metric: Metric
    draws: tuple[tuple[int, int], ...]
    """[S] split and seed of each pair of runs with both numbers."""
    values: np.ndarray
    """[P] by split, or by seed with one split, in percentage points of the accuracy, or units of the loss."""
    num_diverged: int
    """Pairs with a run that has diverged, whether there is a number or not."""
    num_skipped: int
    """Pairs with a run in which no client had a weight at the end."""
    num_pairs: int
    """All pairs."""

    @property
    def mean(self) -> float:
        """Over splits or seeds."""
        return float(self.values.mean())

    @property
    def half_width(self) -> float | None:
        """Half of the confidence interval of the mean; None if there is `statistics.no_test`."""
        return half_width(self.values)

    @property
    def is_significant(self) -> bool:
        """Whether the confidence interval excludes 0, and no run has failed."""
        has_failed = self.num_diverged + self.num_skipped > 0
        return not has_failed and self.half_width is not None and abs(self.mean) > self.half_width

    @property
    def p_value(self) -> float | None:
        """Of the t-test that the mean is 0; None if there is `statistics.no_test`."""
        return p_value(self.values)


def find_rule(results: Results, rule: str) -> str | None:
    """The name in the results of `rule`, which may be given as there or as in a configuration; None: no runs."""
    file, _, name = rule.rpartition(":")
    names = {setting.aggregator for setting in results.settings}
    return next((shown for shown in (rule, f"{name} ({file})", labels([rule])[rule]) if shown in names), None)


def differences(results: Results, baseline: str = BASELINE) -> list[Difference]:
    """Each setting of another rule minus the settings of the rule `baseline` in its scenario, with a common draw.

    Swept values must agree, except those in a rule's own section. Raises `ConfigError` if there is no run of
    `baseline`.
    """
    rule = find_rule(results, baseline)
    if rule is None:
        rules = ", ".join(dict.fromkeys(setting.aggregator for setting in results.settings))
        raise ConfigError(f"--baseline: must be one of {rules}, got {baseline}")
    metric_of = metrics_by_data(results.settings)
    condition = lambda setting: (setting.data_scenario, setting.shared_values)
    pairs = [
        difference(setting, reference, metric_of[setting.data])
        for setting in results.settings
        for reference in results.settings
        if setting.aggregator != rule == reference.aggregator and condition(setting) == condition(reference)
    ]
    return [pair for pair in pairs if pair is not None]


def difference(setting: Setting, baseline: Setting, metric: Metric) -> Difference | None:
    """A setting minus another, run by run; None if no split and seed has both numbers."""
    position_of = {draw: position for position, draw in enumerate(baseline.draws)}
    pairs = [(position, position_of[draw]) for position, draw in enumerate(setting.draws) if draw in position_of]
    left, right = np.asarray(pairs, int).reshape(-1, 2).T
    values = metric.scale * (metric.final_recorded(setting)[left] - metric.final_recorded(baseline)[right])
    if not np.isfinite(values).any():
        return None
    common = tuple(setting.draws[position] for position in left[np.isfinite(values)])
    by_split = split_means(values[np.isfinite(values)], [split for split, _ in common])
    num_diverged = (setting.has_diverged[left] | baseline.has_diverged[right] | ~np.isfinite(values)).sum()
    num_skipped = (setting.was_skipped[left] | baseline.was_skipped[right]).sum()
    return Difference(setting, baseline, metric, common, by_split, int(num_diverged), int(num_skipped), len(pairs))


def paired_tables(results: Results, baseline: str = BASELINE) -> list[Table]:
    """The mean differences with their intervals, a table a data set."""
    every = differences(results, baseline)
    data = data_sets(d.setting for d in every)
    return [_table(results, [d for d in every if d.setting.data == name]) for name in data]


def _table(results: Results, differences: Sequence[Difference]) -> Table:
    """The table of the differences of one data set."""
    baseline, metric = differences[0].baseline.aggregator, differences[0].metric
    names = row_names(results.settings)
    baselines = row_names(results.settings, without={key for d in differences for key, _ in d.baseline.shared_values})
    has_several = len({d.setting for d in differences}) < len(differences)  # baselines of a setting: name them
    row = lambda d: f"{names[d.setting]} − {baselines[d.baseline]}" if has_several else names[d.setting]
    shown, unit = aggregator_name(baseline), " (percentage points)" if metric.is_percentage else ""
    title = f"Difference to {shown} in {metric.title.lower()}{unit} {final_text(d.setting for d in differences)}"
    spread = f"mean over {draws_text(d.draws for d in differences)}"
    corrected_p = holm([d.p_value for d in differences])
    if num_tests := int(np.isfinite(corrected_p).sum()):
        corrected = f" after Holm's correction for {num_tests} comparisons" if num_tests > 1 else ""
        bold = f"in bold if significant at {100 * (1 - CONFIDENCE):.0f} %{corrected}"
        spread = f"{spread.replace('mean', f'mean ± half of its {100 * CONFIDENCE:.0f} % t-interval')}, {bold}"
    entries = [TableEntry(row(d), d.setting, _number(d, p)) for d, p in zip(differences, corrected_p, strict=True)]
    table = tabulate(title, f"rule − {shown}, run by run: {spread}", entries)
    untested = _untested([(f"{row(d)}, {scenario_name(d.setting.scenario)}", d) for d in differences])
    notes = (*table.notes, *untested, *closing_notes(results, differences[0].setting.data, metric))
    return replace(table, signed=True, digits=metric.digits, notes=notes)


def _untested(named: Sequence[tuple[str, Difference]]) -> list[str]:
    """Which differences have neither an interval nor a test, and why."""
    places: dict[str, list[str]] = {}
    for place, d in named:
        if reason := no_test(d.values, "seeds" if len({split for split, _ in d.draws}) == 1 else "splits"):
            places.setdefault(reason, []).append(place)
    which = lambda of: "; ".join(of) if len(of) < len(named) else "all numbers"
    return [f"No interval and no test, {reason}: {which(of)}." for reason, of in places.items()]


def _number(d: Difference, corrected_p: float) -> Number:
    number = Number(d.mean, d.half_width, False, d.num_pairs, d.num_diverged, d.num_skipped)
    return replace(number, bold=bool(corrected_p < 1 - CONFIDENCE) and not number.marks)


def paired_rows(differences: Sequence[Difference]) -> list[dict[str, Any]]:
    """One row a difference, for paired.csv; accuracies from 0 to 1, None without an interval.

    p-values are corrected in each data set.
    """
    rows = []
    for data in data_sets(d.setting for d in differences):
        of_data = [d for d in differences if d.setting.data == data]
        rows += [_row(d, p) for d, p in zip(of_data, holm([d.p_value for d in of_data]), strict=True)]
    return rows


def _row(d: Difference, corrected_p: float) -> dict[str, Any]:
    half, scale = d.half_width, d.metric.scale
    return {
        "data": d.setting.data,
        "aggregator": d.setting.aggregator,
        "reference": d.baseline.aggregator,
        "corruption": d.setting.corruption,
        "attack": d.setting.attack,
        "attack_fraction": d.setting.attack_fraction,
        "fraction": d.setting.fraction,
        "lam": d.setting.lam,
        "reference_lam": d.baseline.lam,
        "settings": format_values(d.setting.swept_values),
        "reference_settings": format_values(d.baseline.swept_values),
        "num_splits": len({split for split, _ in d.draws}),
        "num_runs": len(d.draws),
        "difference_mean": d.mean / scale,
        "difference_low": None if half is None else (d.mean - half) / scale,
        "difference_high": None if half is None else (d.mean + half) / scale,
        "p": d.p_value,
        "p_holm": None if np.isnan(corrected_p) else float(corrected_p),
    }
