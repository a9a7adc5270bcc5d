"""Robustness and convergence (Sec. 5.2, Fig. 2): test loss and accuracy over rounds, half of the clients corrupted."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.paper import select
from fedsim.paper.claims import Claim, claim, not_run
from fedsim.paper.plots import of_rule, with_band
from fedsim.report import style
from fedsim.report.cells import Cell, Results
from fedsim.report.names import aggregator_name, scenario_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULES = ("fedavg", "rfa", "multi_krum", "arfl")
ROBUST, EASY = (("shuffling", 0.5), ("flipping", 0.5)), (("none", 0.0), ("noisy", 0.5))
SCENARIOS = (EASY[0], *ROBUST, EASY[1])  # the figure's panels
SPREAD = 3.0  # percentage points between rules: Table 2 has 2.9 on clean and 1.5 on noisy FEMNIST


def claims(results: Results) -> list[Claim]:
    """ARFL ends highest under shuffling and flipping; on clean and noisy data all end alike, Multi-Krum last."""
    made = []
    for scenario in ROBUST:
        made += _highest(scenario, _rules(results, scenario))
    for scenario in EASY:
        made += _alike(scenario, _rules(results, scenario))
    return [*made, _biased(_rules(results, EASY[0]))]


def _rules(results: Results, scenario: tuple[str, float]) -> dict[str, Cell]:
    """The cells of a scenario by rule, of the rules that were run."""
    wanted = dict(zip(select.SCENARIO, scenario, strict=True))
    cells = {rule: select.one(results, wanted | {"server.aggregator": rule}) for rule in RULES}
    return {rule: cell for rule, cell in cells.items() if cell is not None}


def _highest(scenario: tuple[str, float], cells: dict[str, Cell]) -> list[Claim]:
    name = scenario_name(scenario)
    accurate = f"{name}: ARFL converges to the highest accuracy", "Fig. 2"
    low = f"{name}: ARFL ends with the lowest test loss", "Sec. 5.2: the others diverge"
    if "arfl" not in cells or len(cells) < 2:
        return [not_run(*accurate), not_run(*low)]
    accuracy = {rule: select.final(cell) for rule, cell in cells.items()}
    loss = _losses(cells)
    others = [rule for rule in cells if rule != "arfl"]
    return [
        claim(*accurate, _told(accuracy, " %"), all(accuracy["arfl"] > accuracy[rule] for rule in others)),
        claim(*low, _told(loss, " nats"), all(not loss[rule] <= loss["arfl"] for rule in others)),  # NaN is diverged
    ]


def _alike(scenario: tuple[str, float], cells: dict[str, Cell]) -> list[Claim]:
    text = f"{scenario_name(scenario)}: all end within {SPREAD:g} points", "Sec. 5.2: all converge"
    slow = f"{scenario_name(scenario)}: Multi-Krum is the slowest (mean accuracy over all rounds)", "Sec. 5.2"
    made = [not_run(*text), not_run(*slow)]
    if len(cells) > 1:
        accuracy = {rule: select.final(cell) for rule, cell in cells.items()}
        spread = max(accuracy.values()) - min(accuracy.values())
        made[0] = claim(*text, f"{spread:.2f} points: {_told(accuracy, ' %')}", spread <= SPREAD)
    if len(cells) > 1 and "multi_krum" in cells:
        mean = {rule: 100 * float(cell.accuracy.mean()) for rule, cell in cells.items()}
        made[1] = claim(*slow, _told(mean, " %"), mean["multi_krum"] == min(mean.values()))
    return made


def _biased(cells: dict[str, Cell]) -> Claim:
    text = (
        f"{scenario_name(EASY[0])}: ARFL ends with the highest test loss",
        "Sec. 5.2: slightly higher than the others",
    )
    if "arfl" not in cells or len(cells) < 2:
        return not_run(*text)
    loss = _losses(cells)
    return claim(*text, _told(loss, " nats"), loss["arfl"] == max(loss.values()))


def _losses(cells: dict[str, Cell]) -> dict[str, float]:
    """The test loss after the last round, in nats; mean over seeds."""
    return {rule: float(cell.loss[:, -1].mean()) for rule, cell in cells.items()}


def _told(values: dict[str, float], unit: str) -> str:
    return ", ".join(f"{aggregator_name(rule)} {value:.2f}" for rule, value in values.items()) + unit


def figures(results: Results) -> dict[str, "Figure"]:
    """The paper's Fig. 2: a column a scenario, accuracy above and loss below; bands from the least to the greatest."""
    shown = {scenario: cells for scenario in SCENARIOS if (cells := _rules(results, scenario))}
    if not shown:
        return {}
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.9 + 2.6 * len(shown), 4.8))
    upper, lower = figure.subplots(2, len(shown), sharex=True, sharey="row", squeeze=False)
    handles: dict[str, Any] = {}
    for (scenario, cells), high, low in zip(shown.items(), upper, lower, strict=True):
        for rule in RULES:
            if (cell := cells.get(rule)) is not None:
                look = of_rule(rule)
                handles[aggregator_name(rule)] = with_band(high, cell.rounds, 100 * cell.accuracy.T, look)
                with_band(low, cell.rounds, cell.loss.T, look)
        high.set_title(scenario_name(scenario))
        style.over_rounds(low)
    if _ratio(shown) > 10:
        lower[0].set_yscale("log")
    upper[0].set_ylabel("Test accuracy (%)")
    lower[0].set_ylabel("Test loss (nats)")
    return {"convergence": style.finish(figure, [], "", handles)}


def _ratio(shown: dict[tuple[str, float], dict[str, Cell]]) -> float:
    """Of the largest to the smallest loss."""
    losses = np.concatenate([cell.loss.ravel() for cells in shown.values() for cell in cells.values()])
    losses = losses[np.isfinite(losses) & (losses > 0)]
    return float(losses.max() / losses.min()) if len(losses) else 1.0
