"""The rows of tables and lines of figures: a rule, with lambda and other values if these tell rules apart."""

from collections.abc import Collection, Iterable, Sequence

from fedsim.report.keys import WEIGHTING
from fedsim.report.names import AGGREGATORS, SweptValues, aggregator_name, format_values
from fedsim.report.settings import DataScenario, Setting

LAM = "lam"  # in `without`: the rule's lambda, whichever its section


def row_names(settings: Sequence[Setting], without: Collection[str] = ()) -> dict[Setting, str]:
    """The row of each setting: the rule, with its weighting, lambda and swept values, except the keys in `without`.

    A rule whose lambda only follows the scenario (10^4 for clean data, say) is one row, without lambda.
    """
    kept = lambda setting: tuple((key, value) for key, value in setting.row_values if key not in without)
    rules = {setting: (setting.aggregator, kept(setting)) for setting in settings}
    lams: dict[tuple[tuple[str, SweptValues], DataScenario], set[float | None]] = {}
    for setting, rule in rules.items():
        lams.setdefault((rule, setting.data_scenario), set()).add(setting.lam)
    named_by_lam = {rule for (rule, _), different in lams.items() if len(different) > 1}

    def name(setting: Setting, rule: tuple[str, SweptValues]) -> str:
        lam = lam_text(setting) if rule in named_by_lam and LAM not in without else ""
        values = dict(rule[1])
        weighting = values.pop(WEIGHTING, None)
        shown = aggregator_name(setting.aggregator) + (
            f" with {aggregator_name(weighting)}'s weights" if weighting else ""
        )
        return ", ".join(filter(None, (shown, lam, format_values(tuple(values.items())))))

    return {setting: name(setting, rule) for setting, rule in rules.items()}


def lam_text(setting: Setting) -> str:
    """For example "λ = 10 M", of ARFL, or "λ = 10", of another rule; empty if there is none."""
    if setting.lam is None:
        return ""
    return f"λ = {setting.lam:g} M" if setting.aggregator == "arfl" else f"λ = {setting.lam:g}"


def lam_label(settings: Iterable[Setting]) -> str:
    """The name of an axis over lambda; only ARFL's is known to be in units of M."""
    rules = {setting.aggregator for setting in settings if setting.lam is not None}
    return "λ (in units of M)" if rules == {"arfl"} else "λ"


def ordered_rows(named: Iterable[tuple[Setting, str]]) -> list[str]:
    """The different names: built-in rules, plug-ins, ARFL; of a rule, by first appearance of values, then lambda."""
    pairs = list(named)
    known = [rule for rule in AGGREGATORS if rule != "arfl"]
    rank = {rule: position for position, rule in enumerate(known)} | {"arfl": len(known) + 1}
    different = dict.fromkeys(setting.row_values for setting, _ in pairs)
    positions = {values: position for position, values in enumerate(different)}
    first: dict[str, tuple[int, int, float]] = {}
    for setting, name in pairs:
        order = rank.get(setting.aggregator, len(known)), positions[setting.row_values], setting.lam or 0.0
        first.setdefault(name, order)
    return sorted(first, key=lambda name: first[name])
