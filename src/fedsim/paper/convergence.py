"""Robustness and convergence (Sec. 5.2, Fig. 2): test loss and accuracy over rounds, half of the clients corrupted."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.paper.claims import Claim, Measurement, Statement
from fedsim.paper.figures import rule_line
from fedsim.paper.settings import by_seed, final_accuracies, find_setting, paired_differences
from fedsim.report import style
from fedsim.report.names import aggregator_name, scenario_name
from fedsim.report.results import Results
from fedsim.report.settings import Scenario, Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULES = ("fedavg", "rfa", "multi_krum", "arfl")
CLEAN, NOISY = Scenario("none", 0.0), Scenario("noisy", 0.5)
SHUFFLED, FLIPPED = Scenario("shuffling", 0.5), Scenario("flipping", 0.5)
SCENARIOS = (CLEAN, SHUFFLED, FLIPPED, NOISY)
"""The figure's panels."""
MAX_SPREAD = 3.0
"""Percentage points between rules; Table 2 has 2.9 on clean and 1.5 on noisy FEMNIST."""

SettingsByRule = dict[str, Setting]
ValuesBySeed = dict[int, float]
ValuesByRule = dict[str, ValuesBySeed]


def claims(results: Results) -> list[Claim]:
    """ARFL ends highest under shuffling and flipping; on clean and noisy data all rules converge, Multi-Krum last."""
    by_scenario = {scenario: _find_rules(results, scenario) for scenario in SCENARIOS}

    def check(scenario: Scenario, text: str, published: str, measure: Callable[..., Measurement], rule: str) -> Claim:
        """Checks the statement if `rule` and another rule were run; any two rules do if `rule` is empty."""
        settings = by_scenario[scenario]
        was_run = len(settings) > 1 and (not rule or rule in settings)
        return Statement(f"{scenario_name(scenario)}: {text}", published, measure).check(settings if was_run else None)

    high = ("ARFL converges to the highest accuracy", "Fig. 2", _has_highest_accuracy, "arfl")
    low = ("ARFL ends with the lowest test loss", "Sec. 5.2: the other rules diverge", _has_lowest_loss, "arfl")
    close = (f"all rules end within {MAX_SPREAD:g} points", "Sec. 5.2: all converge", _are_close, "")
    slow = ("Multi-Krum is the slowest (mean accuracy over all rounds)", "Sec. 5.2", _krum_is_slowest, "multi_krum")
    biased = ("ARFL ends with the highest test loss", "Sec. 5.2: slightly higher", _has_highest_loss, "arfl")
    return [
        *(check(scenario, *statement) for scenario in (SHUFFLED, FLIPPED) for statement in (high, low)),
        *(check(scenario, *statement) for scenario in (CLEAN, NOISY) for statement in (close, slow)),
        check(CLEAN, *biased),
    ]


def _find_rules(results: Results, scenario: Scenario) -> SettingsByRule:
    """The settings of a scenario by rule, without rules that were not run."""
    values = {"corruption.kind": scenario.corruption, "corruption.fraction": scenario.fraction}
    settings = {rule: find_setting(results, values | {"server.aggregator": rule}) for rule in RULES}
    return {rule: setting for rule, setting in settings.items() if setting is not None}


def _has_highest_accuracy(settings: SettingsByRule) -> Measurement:
    return _compare(_accuracies(settings), "arfl", 1, " %", "points")


def _has_lowest_loss(settings: SettingsByRule) -> Measurement:
    return _compare(_losses(settings), "arfl", -1, " nats", "nats")


def _has_highest_loss(settings: SettingsByRule) -> Measurement:
    return _compare(_losses(settings), "arfl", 1, " nats", "nats")


def _krum_is_slowest(settings: SettingsByRule) -> Measurement:
    mean = {rule: by_seed(setting, 100 * setting.accuracy.mean(axis=1)) for rule, setting in settings.items()}
    return _compare(mean, "multi_krum", -1, " %", "points")


def _compare(values: ValuesByRule, rule: str, sign: int, unit: str, margin_unit: str) -> Measurement:
    """The margin by which the mean of `rule` is above those of all others (sign 1), or below them (-1)."""
    other_rules = [name for name in values if name != rule]
    nearest = max(other_rules, key=lambda name: sign * _mean(values[name]))
    above, below = (rule, nearest) if sign > 0 else (nearest, rule)
    return _format(values, unit, paired_differences(values[above], values[below]), margin_unit)


def _are_close(settings: SettingsByRule) -> Measurement:
    accuracy = _accuracies(settings)
    highest, lowest = (choose(accuracy, key=lambda rule: _mean(accuracy[rule])) for choose in (max, min))
    spread = paired_differences(accuracy[highest], accuracy[lowest])
    return _format(accuracy, " %", None if spread is None else MAX_SPREAD - spread, "points")


def _accuracies(settings: SettingsByRule) -> ValuesByRule:
    return {rule: final_accuracies(setting) for rule, setting in settings.items()}


def _losses(settings: SettingsByRule) -> ValuesByRule:
    """The test loss after the last round, in nats; infinite for diverged runs."""
    return {rule: by_seed(s, np.nan_to_num(s.loss[:, -1], nan=np.inf)) for rule, s in settings.items()}


def _mean(values: ValuesBySeed) -> float:
    return float(np.mean(list(values.values())))


def _format(values: ValuesByRule, unit: str, margin: np.ndarray | None, margin_unit: str) -> Measurement:
    means = ", ".join(f"{aggregator_name(rule)} {_mean(accuracies):.2f}" for rule, accuracies in values.items())
    return Measurement(means + unit, margin, margin_unit)


def figures(results: Results) -> dict[str, "Figure"]:
    """The paper's Fig. 2: a column for each scenario, accuracy above and loss below; bands from lowest to highest."""
    shown = {scenario: settings for scenario in SCENARIOS if (settings := _find_rules(results, scenario))}
    if not shown:
        return {}
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.9 + 2.6 * len(shown), 4.8))
    upper, lower = figure.subplots(2, len(shown), sharex=True, sharey="row", squeeze=False)
    handles: dict[str, Any] = {}
    for (scenario, settings), high, low in zip(shown.items(), upper, lower, strict=True):
        for rule, setting in settings.items():
            look = rule_line(rule)
            handles[aggregator_name(rule)] = style.with_band(high, setting.rounds, 100 * setting.accuracy.T, look)
            style.with_band(low, setting.rounds, setting.loss.T, look)
        high.set_title(scenario_name(scenario))
        style.over_rounds(low)
    if _loss_ratio(shown) > 10:
        lower[0].set_yscale("log")
    upper[0].set_ylabel("Test accuracy (%)")
    lower[0].set_ylabel("Test loss (nats)")
    return {"convergence": style.finish(figure, [], "", handles)}


def _loss_ratio(shown: dict[Scenario, SettingsByRule]) -> float:
    """Ratio of the largest to the smallest loss."""
    losses = np.concatenate([setting.loss.ravel() for settings in shown.values() for setting in settings.values()])
    losses = losses[np.isfinite(losses) & (losses > 0)]
    return float(losses.max() / losses.min()) if len(losses) else 1.0
