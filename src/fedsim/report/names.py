"""How things are called in tables and figures."""

from fedsim.report.cells import Cell, in_scenario, scenarios

AGGREGATORS = {"fedavg": "FedAvg", "rfa": "RFA", "multi_krum": "Multi-Krum", "cfl": "CFL", "arfl": "ARFL"}


def scenario_name(scenario: tuple[str, float]) -> str:
    """For example "Clean", or "Shuffling 30 %"."""
    kind, fraction = scenario
    if kind == "none":
        return f"Attack {100 * fraction:.3g} %" if fraction else "Clean"
    return f"{kind.capitalize()} {100 * fraction:.3g} %"


def row_names(cells: list[Cell]) -> dict[int, str]:
    """The row of each cell (by its position): the rule, with lambda and settings where these tell cells apart.

    A rule whose lambda only follows the scenario (10^4 for clean data, say) is one row.
    """
    several = set()
    for scenario in scenarios(cells):
        seen: dict[tuple[str, str], set[float | None]] = {}
        for cell in in_scenario(cells, scenario):
            seen.setdefault((cell.aggregator, cell.settings), set()).add(cell.lam)
        several |= {key for key, lams in seen.items() if len(lams) > 1}
    names = {}
    for position, cell in enumerate(cells):
        lam = f"λ = {cell.lam:g} M" if (cell.aggregator, cell.settings) in several else ""
        label = AGGREGATORS.get(cell.aggregator, cell.aggregator)
        names[position] = ", ".join(part for part in (label, lam, cell.settings) if part)
    return names
