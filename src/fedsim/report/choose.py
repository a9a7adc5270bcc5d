"""Values that are chosen among swept ones: on validation data, for each scenario or for the worst of several attacks.

With `per="worst"` a rule has one value for all attacks at a share of corrupted clients: that whose mean over seeds is
best under the attack that is worst for it, as in ByzFL (M. Gonzalez, R. Guerraoui, R. Pinot, G. Rizk, J. Stephan,
F. Taiani: "ByzFL: Research Framework for Robust Federated Learning", 2025, https://arxiv.org/abs/2505.24802).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from fedsim.config.roles import NOT_IN_IDS
from fedsim.errors import ConfigError
from fedsim.report.keys import SETTING_KEYS
from fedsim.report.metric import Metric
from fedsim.report.names import SweptValues, aggregator_name, format_values, join, percent, scenario_name
from fedsim.report.results import Choice, Results, Selection
from fedsim.report.rows import row_names
from fedsim.report.settings import Scenario, Setting, rows_of
from fedsim.runs.sweep import lam_key, varying_keys

By = Literal["validation", "test"]
Per = Literal["scenario", "worst"]
Candidates = dict[SweptValues, list[Setting]]  # by the values of the keys
# What settings that share one choice have in common: data set, rule, swept values that are not chosen, lambda if it is
# swept in each scenario, and the scenario or the share of corrupted or malicious clients.
ChoiceKey = tuple[str, str, SweptValues, float | None, Scenario | float]


def choose(results: Results, keys: Sequence[str], by: By = "validation", per: Per = "worst") -> Results:
    """Keeps only the settings with the best values of `keys`, which are then no part of a rule's name.

    Values with diverged runs, or whose metric is not finite, are worse than any. Ties: the values that come first.
    Raises `ConfigError` if a key was not swept, there are no validation data, or no value was run in all scenarios of a
    share.
    """
    _check_swept(results, keys)
    if by == "validation":
        _check_validation(results)
    kept_values = lambda setting: tuple(pair for pair in setting.swept_values if pair[0] not in keys)
    lams: dict[tuple[Any, ...], set[float | None]] = {}
    for setting in results.settings:
        lams.setdefault((setting.aggregator, kept_values(setting), setting.scenario), set()).add(setting.lam)
    groups: dict[ChoiceKey, Candidates] = {}
    for setting in results.settings:
        run = results.runs[setting.runs[0]]
        values = tuple((key, run[key]) for key in keys if key in run)
        kept = kept_values(setting)
        of_group = kept if per == "scenario" else tuple(v for v in kept if setting.roles[v[0]] != "threat")
        follows_scenario = len(lams[setting.aggregator, kept, setting.scenario]) == 1
        lam = None if follows_scenario or lam_key(run) in keys else setting.lam
        where = setting.scenario if per == "scenario" or setting.scenario.is_clean else setting.scenario.share
        group = setting.data, setting.aggregator, of_group, lam, where
        candidate = replace(setting, swept_values=kept, chosen=values)
        groups.setdefault(group, {}).setdefault(values, []).append(candidate)
    settings: list[Setting] = []
    choices = []
    for (_, aggregator, of_group, _, where), candidates in groups.items():
        candidates = _run_in_all_scenarios(aggregator, candidates, keys)
        on_test = {values: _worst(results, of, "test") for values, of in candidates.items()}
        scores = {values: _worst(results, of, by) for values, of in candidates.items()}
        values = max(scores, key=scores.__getitem__)
        settings += candidates[values]
        first = replace(candidates[values][0], swept_values=of_group)
        optimism = max(on_test.values()) - on_test[values] if results.explored is None else np.nan
        place = percent(where) if isinstance(where, float) else scenario_name(where)
        choices.append(Choice(first, place, values, optimism))
    settings.sort(key=lambda setting: setting.position)
    on = "validation data" if by == "validation" else "the test set itself, which is optimistic"
    how = "one value for the worst attack at each share" if per == "worst" else "each scenario by itself"
    selection = Selection(f"{', '.join(keys)}: chosen on {on}, {how}.", by, tuple(choices))
    return replace(results, settings=settings, table=rows_of(results.table, settings), selection=selection)


def _worst(results: Results, settings: Sequence[Setting], by: By) -> float:
    """The worst mean over splits or seeds of some settings; greater is better, whatever the metric."""
    metric = results.metric(settings[0])
    numbers = [results.basis(setting, metric if by == "test" else metric.on_validation) for setting in settings]
    return min(metric.sign * n["mean"] if not n["num_failed"] and n["mean"] is not None else -np.inf for n in numbers)


def _run_in_all_scenarios(aggregator: str, candidates: Candidates, keys: Sequence[str]) -> Candidates:
    """The candidates that were run in every scenario of a group; raises `ConfigError` if there are none."""
    every = {setting.scenario for settings in candidates.values() for setting in settings}
    complete = {values: of for values, of in candidates.items() if {setting.scenario for setting in of} == every}
    if not complete:
        share = next(iter(every)).share
        raise ConfigError(
            f"--choose-per worst: no value of {', '.join(keys)} was run in all {len(every)} scenarios of "
            f"{aggregator_name(aggregator)} at {100 * share:g} %; run them, or use --choose-per scenario"
        )
    return complete


def _check_swept(results: Results, keys: Sequence[str]) -> None:
    """Raises `ConfigError` if a key does not vary, or belongs to the scenario: each rule would choose its own data."""
    roles = results.settings[0].roles
    can_be_chosen = lambda key: roles[key] not in ("data", "threat") and key not in (*SETTING_KEYS, *NOT_IN_IDS)
    swept = list(filter(can_be_chosen, varying_keys(results.runs[setting.runs[0]] for setting in results.settings)))
    for key in keys:
        if key not in swept:
            remedy = f"choose among {', '.join(swept)}" if swept else "none was swept"
            what = "must be swept settings of a rule or of training, not of the scenario"
            raise ConfigError(f"--choose: {what}, got {key}; {remedy}")


def _check_validation(results: Results) -> None:
    for setting in results.settings:
        number = results.basis(setting, results.metric(setting).on_validation)
        if number["mean"] is None and not number["num_diverged"]:
            raise ConfigError(
                f"--choose: needs validation data, but runs of {setting.data} have none; run them with "
                "data.validation_fraction = 0.1, or choose on the test set: --by test"
            )


def selection_notes(selection: Selection, data: str, metric: Metric) -> tuple[str, ...]:
    """What was chosen and how, as lines below a table of a data set."""
    choices = [choice for choice in selection.choices if choice.setting.data == data]
    by_rule: dict[str, dict[str, list[str]]] = {}  # of each rule, by the values: where
    names = row_names([choice.setting for choice in choices])
    for choice in choices:
        rule = join(names[choice.setting], format_values(choice.setting.values_of("data")))
        by_rule.setdefault(rule, {}).setdefault(format_values(choice.values), []).append(choice.where)
    lines = [f"{rule}: {_chosen_text(by_values)}." for rule, by_values in by_rule.items() if any(by_values)]
    optimism = [choice.optimism for choice in choices if choice.values and np.isfinite(choice.optimism)]
    if selection.by == "validation" and optimism:
        largest, average = (f"{value:.{metric.digits}f}" for value in (max(optimism), float(np.mean(optimism))))
        points, lower = f"up to {largest} percentage points more", f"a test loss that is lower by up to {largest}"
        more = points if metric.is_percentage else lower
        lines.append(f"Choosing on the test set would show {more}, {average} on average.")
    return selection.sentence, *lines


def _chosen_text(by_values: dict[str, list[str]]) -> str:
    """For example "lam=1 (20 %, 40 %), lam=10 (Clean)"; the values alone if they are the same everywhere."""
    if len(by_values) == 1:
        return next(iter(by_values)) or "nothing to choose"
    return "; ".join(f"{values} ({', '.join(where)})" for values, where in by_values.items())
