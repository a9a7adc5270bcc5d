"""The rows of tables and lines of figures: a rule, with its settings where these tell rules apart."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from fedsim.report.cells import Place, Setup
from fedsim.report.names import AGGREGATORS, aggregator_name
from fedsim.report.settings import Settings, text

LAM = "lam"  # in `without`: the rule's lambda, whichever its section


class Rule(NamedTuple):
    """A row but for its lambda."""

    aggregator: str
    settings: Settings


def row_names(cells: Sequence[Setup], without: Collection[str] = ()) -> list[str]:
    """The row of each cell: the rule, with lambda and settings where these tell cells apart.

    A rule whose lambda only follows the scenario (10^4 for clean data, say) is one row. The keys in `without` are left
    out.
    """
    kept = lambda cell: tuple((key, value) for key, value in cell.settings if key not in without)
    rules = [Rule(cell.aggregator, kept(cell)) for cell in cells]
    lams: dict[Rule, dict[Place, set[float | None]]] = {}
    for cell, rule in zip(cells, rules, strict=True):
        lams.setdefault(rule, {}).setdefault(cell.place, set()).add(cell.lam)
    named_by_lam = {rule for rule, by_place in lams.items() if any(len(several) > 1 for several in by_place.values())}
    names = []
    for cell, rule in zip(cells, rules, strict=True):
        lam = lam_text(cell) if rule in named_by_lam and LAM not in without else ""
        names.append(", ".join(part for part in (aggregator_name(rule.aggregator), lam, text(rule.settings)) if part))
    return names


def lam_text(cell: Setup) -> str:
    """For example "λ = 10 M", of ARFL, or "λ = 10", of another rule; empty where there is none."""
    if cell.lam is None:
        return ""
    return f"λ = {cell.lam:g} M" if cell.aggregator == "arfl" else f"λ = {cell.lam:g}"


def lam_label(cells: Iterable[Setup]) -> str:
    """The name of an axis over lambda; only ARFL's is known to be in units of M."""
    rules = {cell.aggregator for cell in cells if cell.lam is not None}
    return "λ (in units of M)" if rules == {"arfl"} else "λ"


def ordered_rows(cells: Sequence[Setup], names: Sequence[str]) -> list[str]:
    """The different `names`: built-in rules, a user's own, ARFL; of a rule, settings as they come, then lambda."""
    known = [rule for rule in AGGREGATORS if rule != "arfl"]
    rank = {rule: position for position, rule in enumerate(known)} | {"arfl": len(known) + 1}
    settings = list(dict.fromkeys(cell.settings for cell in cells))
    order = lambda cell: (rank.get(cell.aggregator, len(known)), settings.index(cell.settings), cell.lam or 0.0)
    first: dict[str, tuple[int, int, float]] = {}
    for cell, name in zip(cells, names, strict=True):
        first.setdefault(name, order(cell))
    return sorted(first, key=lambda name: first[name])
