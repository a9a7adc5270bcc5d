"""Table 2: accuracy of five rules in seven scenarios, measured beside published."""

from typing import NamedTuple

import numpy as np

from fedsim.paper import select
from fedsim.paper.claims import Claim, claim, not_run
from fedsim.paper.grid import Grid
from fedsim.paper.published import Published
from fedsim.paper.published import cell as published_cell
from fedsim.paper.published import cells as published_cells
from fedsim.report.cells import Results
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
    def scenario(self) -> tuple[str, float]:
        """(corruption, fraction)."""
        return self.published.corruption, self.published.fraction


def pairs(results: Results) -> list[Pair]:
    """The run folder's cells that Table 2 has too, in its order; of cells that differ otherwise, the first."""
    found: dict[Published, Pair] = {}
    for cell in results.cells:
        published = published_cell(cell.data, cell.aggregator, cell.corruption, cell.fraction)
        if published is not None and published not in found and not np.isnan(select.final(cell)):
            found[published] = Pair(published, select.final(cell), std(100 * cell.accuracy[:, -1]), len(cell.runs))
    return [found[published] for published in published_cells() if published in found]


def in_short(results: Results) -> str:
    """For example "35 of 35 cells, 1.20 points from published on average"."""
    found = pairs(results)
    if not found:
        return "no cell of Table 2"
    return f"{len(found)} of 35 cells, {_distance(found):.2f} points from published on average"


def _distance(found: list[Pair]) -> float:
    return float(np.mean([abs(pair.difference) for pair in found]))


def claims(results: Results) -> list[Claim]:
    """How far from published; and what Sec. 5.2 says of ARFL, scenario by scenario."""
    found = pairs(results)
    if not found:
        return [not_run("The cells of Table 2", "35 cells of a data set")]
    farthest = max(found, key=lambda pair: abs(pair.difference))
    where = f"{aggregator_name(farthest.published.aggregator)}, {scenario_name(farthest.scenario)}"
    measured = f"{_distance(found):.2f} on average, {farthest.difference:+.2f} at most ({where})"
    distance = claim(f"Percentage points between measured and published means, {len(found)} cells", "0", measured, None)
    every = dict.fromkeys((c.corruption, c.fraction) for c in published_cells() if c.dataset == _dataset(found))
    return [distance, *(_of_arfl(found, scenario) for scenario in every)]


def _dataset(found: list[Pair]) -> str:
    return found[0].published.dataset


def _of_arfl(found: list[Pair], scenario: tuple[str, float]) -> Claim:
    """Under shuffling and flipping ARFL is best, within one published deviation; else it is close to the best."""
    is_robust = scenario[0] in ("shuffling", "flipping")
    of_paper = [c for c in published_cells() if c.dataset == _dataset(found) and (c.corruption, c.fraction) == scenario]
    ours = {pair.published.aggregator: pair.mean for pair in found if pair.scenario == scenario}
    published = _margin({c.aggregator: c.mean for c in of_paper})
    slack = next(c.std for c in of_paper if c.aggregator == "arfl") if is_robust else CLOSE
    what = "best, or within its published deviation of it" if is_robust else f"within {CLOSE:g} point of the best"
    text = f"{scenario_name(scenario)}: ARFL is {what}"
    if "arfl" not in ours or len(ours) < 2:
        return not_run(text, published)
    best_other = max(mean for rule, mean in ours.items() if rule != "arfl")
    measured = _margin(ours) + f" ({len(ours)} rules)" * (len(ours) < len(of_paper))
    return claim(text, published, measured, ours["arfl"] >= best_other - slack)


def _margin(means: dict[str, float]) -> str:
    """ARFL's accuracy, and by how many points it is above the best of the others."""
    rule, best = max(((rule, mean) for rule, mean in means.items() if rule != "arfl"), key=lambda item: item[1])
    return f"{means['arfl']:.2f} %: {means['arfl'] - best:+.2f} to {aggregator_name(rule)}"


def tables(results: Results) -> list[Grid]:
    """Published, measured and difference of each cell, scenario by scenario."""
    found = {(*pair.scenario, pair.published.aggregator): pair for pair in pairs(results)}
    rows = []
    for scenario in dict.fromkeys(key[:2] for key in found):
        of_rules = [pair for rule in AGGREGATORS if (pair := found.get((*scenario, rule))) is not None]
        for position, pair in enumerate(of_rules):
            heading = scenario_name(scenario) if position == 0 else ""
            values = (_told(pair.published.mean, pair.published.std), _told(pair.mean, pair.std))
            rows.append((heading, aggregator_name(pair.published.aggregator), *values, f"{pair.difference:+.2f}"))
    if not rows:
        return []
    seeds = sorted({pair.num_seeds for pair in found.values()})
    over = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    title = f"Test accuracy (%) after the last round; ± deviation over five seeds (measured: {over})"
    return [Grid(title, ("Scenario", "Aggregator", "Table 2", "Measured", "Difference"), tuple(rows), num_text=2)]


def _told(mean: float, std: float | None) -> str:
    return f"{mean:.2f}" + (f" ± {std:.2f}" if std is not None else "")
