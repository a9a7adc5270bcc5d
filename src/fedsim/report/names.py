"""How things are called in tables and figures."""

from collections.abc import Collection

from fedsim.report.cells import Cell
from fedsim.report.settings import text

AGGREGATORS = {"fedavg": "FedAvg", "rfa": "RFA", "multi_krum": "Multi-Krum", "cfl": "CFL", "arfl": "ARFL"}
DATA_SETS = {"digits": "Digits", "cifar10": "CIFAR-10", "femnist": "FEMNIST", "shakespeare": "Shakespeare"}


def aggregator_name(aggregator: str) -> str:
    """For example "Multi-Krum"."""
    return AGGREGATORS.get(aggregator, aggregator)


def data_name(data: str) -> str:
    """For example "CIFAR-10"."""
    return DATA_SETS.get(data, data)


def scenario_name(scenario: tuple[str, float]) -> str:
    """For example "Clean", or "Shuffling 30 %"."""
    return " ".join(part for part in scenario_parts(scenario) if part)


def scenario_parts(scenario: tuple[str, float]) -> tuple[str, str]:
    """For example ("Clean", ""), or ("Shuffling", "30 %")."""
    kind, fraction = scenario
    if kind == "none" and not fraction:
        return "Clean", ""
    return "Attack" if kind == "none" else kind.capitalize(), f"{100 * fraction:.3g} %"


def duration(seconds: float) -> str:
    """For example "40 s", "12 min" or "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def row_names(cells: list[Cell], without: Collection[str] = ()) -> list[str]:
    """The row of each cell: the rule, with lambda and settings where these tell cells apart.

    A rule whose lambda only follows the scenario (10^4 for clean data, say) is one row. The keys in `without` are left
    out.
    """
    kept = [tuple((key, value) for key, value in cell.settings if key not in without) for cell in cells]
    lams: dict[tuple[object, ...], set[float | None]] = {}
    for cell, settings in zip(cells, kept, strict=True):
        place = (cell.aggregator, settings, cell.data, cell.corruption, cell.fraction)
        lams.setdefault(place, set()).add(cell.lam)
    several = set() if "arfl.lam" in without else {place[:2] for place, found in lams.items() if len(found) > 1}
    names = []
    for cell, settings in zip(cells, kept, strict=True):
        lam = f"λ = {cell.lam:g} M" if (cell.aggregator, settings) in several else ""
        names.append(", ".join(part for part in (aggregator_name(cell.aggregator), lam, text(settings)) if part))
    return names


def ordered_rows(cells: list[Cell], names: list[str]) -> list[str]:
    """The different `names`, rules in the paper's order, ARFL last, then settings as they come, then lambda."""
    known = [rule for rule in AGGREGATORS if rule != "arfl"]
    rank = {rule: position for position, rule in enumerate(known)} | {"arfl": len(known) + 1}
    settings = list(dict.fromkeys(cell.settings for cell in cells))
    place = lambda cell: (rank.get(cell.aggregator, len(known)), settings.index(cell.settings), cell.lam or 0.0)
    places: dict[str, tuple[int, int, float]] = {}
    for cell, name in zip(cells, names, strict=True):
        places.setdefault(name, place(cell))
    return sorted(places, key=lambda name: places[name])
