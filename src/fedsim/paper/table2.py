"""Table 2: accuracy of five rules in seven scenarios, measured beside published."""

from typing import NamedTuple

import numpy as np

from fedsim.paper import select
from fedsim.paper.claims import NOT_RUN, Claim, Measured, Statement
from fedsim.paper.grid import Grid
from fedsim.paper.published import Published
from fedsim.paper.published import cell as published_cell
from fedsim.paper.published import cells as published_cells
from fedsim.report.cells import Results, Scenario
from fedsim.report.names import AGGREGATORS, aggregator_name, scenario_name
from fedsim.report.summary import std

CLOSE = 1.0  # percentage points: "very close to the best" (Sec. 5.2); the paper's own cells are within 0.81


class Pair(NamedTuple):
    """A cell of Table 2, in percent, and what was measured."""

    published: Published
    mean: float
    std: float | None  # None: one seed
    num_seeds: int

    @property
    def difference(self) -> float:
        """Measured mean minus published mean, in percentage points."""
        return self.mean - self.published.mean

    @property
    def scenario(self) -> Scenario:
        """That of the cell."""
        return _scenario(self.published)


def _scenario(published: Published) -> Scenario:
    return Scenario(published.corruption, published.fraction)


def pairs(results: Results) -> list[Pair]:
    """The run folder's cells that Table 2 has too, in its order; of cells that differ otherwise, the first."""
    measured: dict[Published, Pair] = {}
    for cell in results.cells:
        published = published_cell(cell.data, cell.aggregator, cell.corruption, cell.fraction)
        if published is not None and published not in measured and not np.isnan(select.final(cell)):
            measured[published] = Pair(published, select.final(cell), std(100 * cell.accuracy[:, -1]), len(cell.runs))
    return [measured[published] for published in published_cells() if published in measured]


def in_short(results: Results) -> str:
    """For example "35 of 35 cells, 1.20 points from published on average"."""
    every = pairs(results)
    if not every:
        return "no cell of Table 2"
    return f"{len(every)} of 35 cells, {_distance(every):.2f} points from published on average"


def _distance(every: list[Pair]) -> float:
    return float(np.mean([abs(pair.difference) for pair in every]))


def claims(results: Results) -> list[Claim]:
    """How far from published; and what Sec. 5.2 says of ARFL, scenario by scenario."""
    every = pairs(results)
    if not every:
        return [Claim("The cells of Table 2", "35 cells of a data set", NOT_RUN, None)]
    text = f"Percentage points between measured and published means, {len(every)} cells"
    of_data_set = [cell for cell in published_cells() if cell.dataset == every[0].published.dataset]
    scenarios = dict.fromkeys(map(_scenario, of_data_set))
    return [
        Statement(text, "0", _distances).check(every),
        *(_of_arfl(scenario, of_data_set).check(every) for scenario in scenarios),
    ]


def _distances(every: list[Pair]) -> Measured:
    farthest = max(every, key=lambda pair: abs(pair.difference))
    where = f"{aggregator_name(farthest.published.aggregator)}, {scenario_name(farthest.scenario)}"
    return Measured(f"{_distance(every):.2f} on average, {farthest.difference:+.2f} at most ({where})", None)


def _of_arfl(scenario: Scenario, of_data_set: list[Published]) -> Statement[list[Pair]]:
    """Under shuffling and flipping ARFL is best, within one published deviation; else it is close to the best."""
    is_robust = scenario.corruption in ("shuffling", "flipping")
    of_paper = {cell.aggregator: cell for cell in of_data_set if _scenario(cell) == scenario}
    slack = of_paper["arfl"].std if is_robust else CLOSE
    what = "best, or within its published deviation of it" if is_robust else f"within {CLOSE:g} point of the best"

    def measure(every: list[Pair]) -> Measured | None:
        ours = {pair.published.aggregator: pair.mean for pair in every if pair.scenario == scenario}
        if "arfl" not in ours or len(ours) < 2:
            return None
        best_other = max(mean for rule, mean in ours.items() if rule != "arfl")
        text = _margin(ours) if len(ours) == len(of_paper) else f"{_margin(ours)} ({len(ours)} rules)"
        return Measured(text, ours["arfl"] >= best_other - slack)

    published = _margin({rule: cell.mean for rule, cell in of_paper.items()})
    return Statement(f"{scenario_name(scenario)}: ARFL is {what}", published, measure)


def _margin(means: dict[str, float]) -> str:
    """ARFL's accuracy, and by how many points it is above the best of the others."""
    rule, best = max(((rule, mean) for rule, mean in means.items() if rule != "arfl"), key=lambda item: item[1])
    return f"{means['arfl']:.2f} %: {means['arfl'] - best:+.2f} to {aggregator_name(rule)}"


def tables(results: Results) -> list[Grid]:
    """Published, measured and difference of each cell, scenario by scenario."""
    every = pairs(results)
    if not every:
        return []
    rows = []
    for scenario in dict.fromkeys(pair.scenario for pair in every):
        by_rule = {pair.published.aggregator: pair for pair in every if pair.scenario == scenario}
        heading = scenario_name(scenario)
        for rule in AGGREGATORS:
            if (pair := by_rule.get(rule)) is not None:
                texts = (_number(pair.published.mean, pair.published.std), _number(pair.mean, pair.std))
                rows.append((heading, aggregator_name(rule), *texts, f"{pair.difference:+.2f}"))
                heading = ""
    seeds = sorted({pair.num_seeds for pair in every})
    over = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    title = f"Test accuracy (%) after the last round; ± deviation over five seeds (measured: {over})"
    return [Grid(title, ("Scenario", "Aggregator", "Table 2", "Measured", "Difference"), tuple(rows), num_text=2)]


def _number(mean: float, std: float | None) -> str:
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"
