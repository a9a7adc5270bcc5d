"""The fraction of corrupted clients (Sec. 5.3, Fig. 3; the sentence on FEMNIST in Sec. 5.2)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.paper.claims import Claim, Measurement, Statement, check_all
from fedsim.paper.figures import rule_line, small_panel
from fedsim.paper.published import published_setting
from fedsim.paper.settings import accuracy_differences, final_accuracy, find_setting, settings_by_value
from fedsim.report import style
from fedsim.report.names import aggregator_name
from fedsim.report.results import Results
from fedsim.report.settings import Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULES = ("arfl", "fedavg")
NOTABLE_DROP = 5.0
"""In percentage points; Table 2 has 3.8 between clean and 50 % shuffled."""
FEMNIST_FRACTION, FEMNIST_ACCURACY = 0.7, 79.0
"""From Sec. 5.2."""

SettingsByFraction = dict[float, Setting]


def settings_by_fraction(results: Results, rule: str) -> SettingsByFraction:
    """The settings of a rule by the fraction of shuffled clients; 0 is clean data."""
    values = {"server.aggregator": rule}
    clean = find_setting(results, values | {"corruption.kind": "none", "attack.kind": "none"})
    shuffled = settings_by_value(results, "corruption.fraction", values | {"corruption.kind": "shuffling"})
    return ({0.0: clean} if clean else {}) | shuffled


def claims(results: Results) -> list[Claim]:
    """ARFL's accuracy hardly changes until 60 % of the clients are corrupted, and falls from there."""
    return check_all(STATEMENTS, *(settings_by_fraction(results, rule) for rule in RULES))


def _drop(start: float, end: float, sign: int) -> Callable[..., Measurement | None]:
    """ARFL's loss from one fraction to another: at least `NOTABLE_DROP` points (sign 1), or at most (-1)."""

    def measure(arfl: SettingsByFraction, _: SettingsByFraction) -> Measurement | None:
        drop = accuracy_differences(arfl[start], arfl[end]) if {start, end} <= arfl.keys() else None
        if drop is None:
            return None
        text = f"{drop.mean():.2f} points: {final_accuracy(arfl[start]):.2f} % to {final_accuracy(arfl[end]):.2f} %"
        return Measurement(text, sign * (drop - NOTABLE_DROP), "points")

    return measure


def _above_fedavg(arfl: SettingsByFraction, fedavg: SettingsByFraction) -> Measurement | None:
    if 0.5 not in arfl.keys() & fedavg.keys():
        return None
    text = f"{final_accuracy(arfl[0.5]):.2f} % and {final_accuracy(fedavg[0.5]):.2f} %"
    return Measurement(text, accuracy_differences(arfl[0.5], fedavg[0.5]), "points")


STATEMENTS = (
    Statement(
        f"From 0 to 50 % corrupted, ARFL loses at most {NOTABLE_DROP:g} points",
        "3.76 (Table 2; clean with λ = 10^4 M)",
        _drop(0.0, 0.5, -1),
    ),
    Statement(
        f"From 0 to 60 % corrupted, ARFL loses at most {NOTABLE_DROP:g} points",
        "Sec. 5.3: no significant change",
        _drop(0.0, 0.6, -1),
    ),
    Statement(f"From 60 to 90 %, it loses more than {NOTABLE_DROP:g} points", "Fig. 3", _drop(0.6, 0.9, 1)),
    Statement("With 50 % corrupted, ARFL is above FedAvg", "+22.66 points (Table 2)", _above_fedavg),
)


def femnist_claims(results: Results) -> list[Claim]:
    """ARFL stays above 79 % on FEMNIST with 70 % corrupted; the paper does not name the corruption, here shuffling."""
    claim, comparison = check_all((FEMNIST_STATEMENT, FEMNIST_COMPARISON), results)
    return [claim, comparison] if claim.was_run and comparison.was_run else [claim]


def _above_79(results: Results) -> Measurement | None:
    setting = settings_by_fraction(results, "arfl").get(FEMNIST_FRACTION)
    if setting is None:
        return None
    return Measurement(f"{final_accuracy(setting):.2f} %", 100 * setting.accuracy[:, -1] - FEMNIST_ACCURACY, "points")


def _compared_accuracies(results: Results) -> Measurement | None:
    texts = [
        f"{aggregator_name(rule)}, {100 * fraction:g} %: {final_accuracy(setting):.2f} %"
        for rule in RULES
        for fraction, setting in settings_by_fraction(results, rule).items()
        if (rule, fraction) != ("arfl", FEMNIST_FRACTION)
    ]
    return Measurement(", ".join(texts)) if texts else None


FEMNIST_STATEMENT = Statement(
    "ARFL's accuracy with 70 % of the clients shuffled is above 79 %", "above 79 %", _above_79
)
FEMNIST_COMPARISON = Statement("For comparison", "not given", _compared_accuracies)


def figures(results: Results) -> dict[str, "Figure"]:
    """The paper's Fig. 3 for ARFL and FedAvg, with Table 2's values for CIFAR-10."""
    by_rule = {rule: settings_by_fraction(results, rule) for rule in RULES}
    shown = {rule: settings for rule, settings in by_rule.items() if len(settings) > 1}
    if not shown:
        return {}
    figure, panel = small_panel()
    handles: dict[str, Any] = {}
    for rule, settings in shown.items():
        look, name = rule_line(rule), aggregator_name(rule)
        fractions = 100 * np.asarray(list(settings))
        values = [100 * setting.accuracy[:, -1] for setting in settings.values()]
        handles[name] = style.with_band(panel, fractions, values, look | {"marker": "o"})
        for fraction, setting in settings.items():
            corruption = "shuffling" if fraction else "none"
            if (published := published_setting(setting.data, rule, corruption, fraction)) is not None:
                marker = {"color": look["color"], "marker": "D", "linestyle": "", "markerfacecolor": "white"}
                handles[f"{name}, published"] = panel.errorbar(
                    100 * fraction, published.mean, published.std, capsize=3, elinewidth=0.8, **marker
                )
    panel.set_xlabel("Corrupted clients (%)")
    panel.set_ylabel("Test accuracy (%)")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2)
    return {"fraction": figure}
