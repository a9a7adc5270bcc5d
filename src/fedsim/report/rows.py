"""The rows of tables and lines of figures: a rule, with lambda and other values if these tell rules apart."""

from collections.abc import Collection, Iterable, Sequence

from fedsim.report.keys import WEIGHTING
from fedsim.report.names import AGGREGATORS, SweptValues, aggregator_name, format_number, format_values, join
from fedsim.report.settings import Scenario, Setting

LAM = "lam"  # in `without`: the rule's lambda, whichever its section


def row_names(settings: Sequence[Setting], without: Collection[str] = ()) -> dict[Setting, str]:
    """The row of each setting: the rule, with its weighting, lambda and swept values, except the keys in `without`.

    A rule whose lambda only follows the scenario (10^4 for clean data, say) is one row, without lambda.
    """
    kept = lambda setting: tuple((key, value) for key, value in setting.row_values if key not in without)
    rules = {setting: (setting.aggregator, kept(setting)) for setting in settings}
    lams: dict[tuple[tuple[str, SweptValues], Scenario], set[float | None]] = {}
    for setting, rule in rules.items():
        lams.setdefault((rule, setting.scenario), set()).add(setting.lam)
    of_rule: dict[tuple[str, SweptValues], set[float | None]] = {}
    for (rule, _), different in lams.items():
        of_rule.setdefault(rule, set()).update(different)
    named_by_lam = {rule for (rule, _), different in lams.items() if len(different) > 1}
    is_number = {(setting.aggregator, setting.lam is not None) for setting in settings}  # or a text, such as "auto"
    named = {aggregator for aggregator, _ in named_by_lam}  # their other rows have lambda, too, if it is one number
    named |= {aggregator for aggregator, _ in is_number if {(aggregator, True), (aggregator, False)} <= is_number}
    named_by_lam |= {rule for rule, different in of_rule.items() if rule[0] in named and len(different) == 1}

    def name(setting: Setting, rule: tuple[str, SweptValues]) -> str:
        values = dict(rule[1])
        weighting = values.pop(WEIGHTING, None)
        weights = f" with {aggregator_name(weighting)}'s weights" if weighting else ""
        lam = setting.lam if rule in named_by_lam and LAM not in without else None
        unit = " M" if setting.aggregator == "arfl" else ""
        shown = "" if lam is None else f"λ = {format_number(lam)}{unit}"
        return join(aggregator_name(setting.aggregator) + weights, shown, format_values(tuple(values.items())))

    return {setting: name(setting, rule) for setting, rule in rules.items()}


def lam_label(settings: Iterable[Setting]) -> str:
    """The name of an axis over lambda; only ARFL's is known to be in units of M."""
    rules = {setting.aggregator for setting in settings if setting.lam is not None}
    return "λ (in units of M)" if rules == {"arfl"} else "λ"


def ordered_rows(named: Iterable[tuple[Setting, str]]) -> dict[str, str]:
    """The rule of each name: built-in rules, plug-ins, ARFL; of a rule, by first appearance of values, then lambda."""
    first: dict[str, Setting] = {}
    positions: dict[SweptValues, int] = {}
    for setting, name in named:
        first.setdefault(name, setting)
        positions.setdefault(setting.row_values, len(positions))
    known = [rule for rule in AGGREGATORS if rule != "arfl"]
    rank = {rule: position for position, rule in enumerate(known)} | {"arfl": len(known) + 1}
    order = lambda s: (rank.get(s.aggregator, len(known)), positions[s.row_values], s.lam or 0.0)
    return {name: first[name].aggregator for name in sorted(first, key=lambda name: order(first[name]))}
