"""Limitations (Sec. 6; Sec. 5.2 on collusion): colluding clients, false losses, flipped updates."""

import numpy as np

from fedsim.paper.claims import Claim, Measurement, Statement
from fedsim.paper.settings import accuracy_differences, final_accuracy, late_corrupted_weight, late_corrupted_weights
from fedsim.report.names import AGGREGATORS, aggregator_name
from fedsim.report.results import Results
from fedsim.report.settings import Scenario, Setting
from fedsim.report.table import Table, text_table

MIN_COST = 5.0
"""Percentage points of accuracy that count as a cost."""
HIGH_FRACTION = 0.7
"""Share of colluding clients in Sec. 5.2."""
MIN_KEPT_SHARE = 0.9
"""Of a client's weight, for the weight to count as kept."""
ATTACKS = {"none": "", "fake_loss": "false losses", "sign_flip": "flipped updates"}


def corrupted_scenarios(results: Results) -> list[Scenario]:
    """The scenarios with corrupted clients, in the order of the settings."""
    scenarios = dict.fromkeys(setting.scenario for setting in results.settings)
    return [scenario for scenario in scenarios if scenario.fraction > 0]


def _find(results: Results, rule: str, scenario: Scenario) -> Setting | None:
    return next((s for s in results.settings if s.aggregator == rule and s.scenario == scenario), None)


def _find_attack(results: Results, attack: str) -> Scenario | None:
    return next((scenario for scenario in corrupted_scenarios(results) if scenario.attack == attack), None)


def claims(results: Results) -> list[Claim]:
    """The limits of ARFL that the paper names."""
    return [*_collusion(results), *_false_losses(results), *_flipped_updates(results)]


def _collusion(results: Results) -> list[Claim]:
    fractions = [s.fraction for s in corrupted_scenarios(results) if s.corruption == "collusion"]
    if not fractions:
        return [_collusion_costs("the clients", "Sec. 6: may bring risk").check(None)]
    collusion_claims = []
    for fraction in fractions:
        published = "Sec. 5.2: not handled" if fraction >= HIGH_FRACTION else "Sec. 6: may bring risk"
        colluding, shuffled = (_find(results, "arfl", Scenario(kind, fraction)) for kind in ("collusion", "shuffling"))
        statement = _collusion_costs(f"{100 * fraction:g} %", published)
        collusion_claims.append(statement.check(colluding, shuffled))
    return collusion_claims


def _collusion_costs(who: str, published: str) -> Statement:
    def measure(colluding: Setting, shuffled: Setting) -> Measurement:
        cost = accuracy_differences(shuffled, colluding)
        text = f"{final_accuracy(colluding):.2f} % with collusion, {final_accuracy(shuffled):.2f} % with shuffling"
        return Measurement(text, None if cost is None else cost - MIN_COST, "points")

    return Statement(f"Collusion of {who} costs ARFL {MIN_COST:g} points more than shuffling", published, measure)


def _false_losses(results: Results) -> list[Claim]:
    scenario = _find_attack(results, "fake_loss")
    setting = _find(results, "arfl", scenario) if scenario else None
    reference = _find(results, "arfl", scenario._replace(attack="none")) if scenario else None

    def more_weight(setting: Setting) -> Measurement:
        share = 100 * setting.fraction
        text = f"{late_corrupted_weight(setting):.1f} % of the weight, {share:g} % of the clients"
        if reference is not None:
            text += f"; {late_corrupted_weight(reference):.1f} % with true losses"
        return Measurement(text, 100 * late_corrupted_weights(setting) - share, "points")

    def less_accuracy(false: Setting, true: Setting) -> Measurement:
        text = f"{final_accuracy(false):.2f} % with false losses, {final_accuracy(true):.2f} % with true losses"
        return Measurement(text, accuracy_differences(true, false), "points")

    text = "Clients that report false small losses get more weight than their share"
    return [
        Statement(text, "Sec. 6: they dominate", more_weight).check(setting),
        Statement("False losses cost ARFL accuracy", "Sec. 6", less_accuracy).check(setting, reference),
    ]


def _flipped_updates(results: Results) -> list[Claim]:
    scenario = _find_attack(results, "sign_flip")
    by_rule = {rule: _find(results, rule, scenario) for rule in ("arfl", *AGGREGATORS)} if scenario else {}
    settings = {rule: setting for rule, setting in by_rule.items() if setting is not None}

    def keeps_weight(setting: Setting) -> Measurement:
        share = 100 * setting.fraction
        margin = 100 * late_corrupted_weights(setting) - MIN_KEPT_SHARE * share
        text = f"{late_corrupted_weight(setting):.1f} % of the weight, {share:g} % of the clients"
        return Measurement(text, margin, "points")

    def no_better(settings: dict[str, Setting]) -> Measurement:
        text = ", ".join(f"{aggregator_name(rule)} {final_accuracy(s):.2f} %" for rule, s in settings.items())
        return Measurement(text, accuracy_differences(settings["fedavg"], settings["arfl"]), "points")

    published = "Sec. 6: outside the method's scope"
    text = (
        f"Clients with clean data that flip their updates keep {100 * MIN_KEPT_SHARE:g} % of their share of the weight"
    )
    worse = Statement("Under flipped updates ARFL is no better than FedAvg", published, no_better)
    return [
        Statement(text, published, keeps_weight).check(settings.get("arfl")),
        worse.check(settings if {"arfl", "fedavg"} <= settings.keys() else None),
    ]


def tables(results: Results) -> list[Table]:
    """Accuracy, and the corrupted clients' weight in the second half of the rounds, by scenario and rule."""
    rules = [rule for rule in AGGREGATORS if any(setting.aggregator == rule for setting in results.settings)]
    header = [text for rule in rules for text in (aggregator_name(rule), "their weight")]
    rows = []
    for scenario in corrupted_scenarios(results):
        entries = [entry for rule in rules for entry in _entries(_find(results, rule, scenario))]
        rows.append((_format_scenario(scenario), *entries))
    title = (
        "Final test accuracy (%), and the corrupted clients' share of the weight in the second half of the rounds (%)"
    )
    return [text_table(title, ("Corrupted clients", *header), rows)] if rows else []


def _format_scenario(scenario: Scenario) -> str:
    corruption = "" if scenario.corruption == "none" else scenario.corruption
    kinds = " and ".join(filter(None, [corruption, ATTACKS.get(scenario.attack, scenario.attack)]))
    return f"{100 * scenario.fraction:g} %: {kinds}"


def _entries(setting: Setting | None) -> tuple[str, str]:
    if setting is None:
        return "", ""
    weight = late_corrupted_weight(setting)
    return f"{final_accuracy(setting):.2f}", "" if np.isnan(weight) else f"{weight:.1f}"
