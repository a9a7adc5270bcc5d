"""Mean ranks of rules over scenarios, and how far apart they must be to differ.

J. Demsar: "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 7, 2006,
https://jmlr.org/papers/v7/demsar06a.html: Friedman's test of all rules being alike, and Nemenyi's critical difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.report.metric import metrics_by_data
from fedsim.report.names import SweptValues
from fedsim.report.results import Results
from fedsim.report.rows import ordered_rows, row_names
from fedsim.report.settings import DataScenario, Setting
from fedsim.report.statistics import CONFIDENCE

MIN_SIZE = 3  # rules, and scenarios


@dataclass(frozen=True)
class Ranks:
    """Ranks of rules, 1 for the best; equally good ones share the mean of theirs.

    R rules, C scenarios, D draws: a split and a seed in a scenario.
    """

    rows: tuple[str, ...]
    """Names [R] of the rules."""
    scenario_ranks: np.ndarray
    """[C, R] by the mean over splits or seeds; a setting with diverged runs is worse than any without."""
    seed_ranks: np.ndarray
    """[D, R] in each draw that all rules have; a run that has diverged is worse than any other."""
    num_left_out: int
    """Scenarios in which not all rules were run."""

    @property
    def mean(self) -> np.ndarray:
        """[R] over scenarios."""
        return np.asarray(self.scenario_ranks.mean(axis=0))

    @property
    def friedman(self) -> tuple[float, float]:
        """Friedman's statistic and its p-value; NaN if all rules always tie."""
        from scipy.stats import friedmanchisquare  # type: ignore[import-untyped]

        if (self.scenario_ranks == self.scenario_ranks[:, :1]).all():
            return np.nan, np.nan
        test = friedmanchisquare(*self.scenario_ranks.T)
        return float(test.statistic), float(test.pvalue)

    @property
    def critical_difference(self) -> float:
        """Nemenyi's: mean ranks that are further apart differ, at the level 1 - `CONFIDENCE` over all pairs."""
        from scipy.stats import studentized_range

        num_scenarios, num_rules = self.scenario_ranks.shape
        q = studentized_range.ppf(CONFIDENCE, num_rules, np.inf) / np.sqrt(2)
        return float(q * np.sqrt(num_rules * (num_rules + 1) / (6 * num_scenarios)))


def ranks(results: Results) -> Ranks | None:
    """The ranks of all rules in the scenarios in which all were run; None with fewer than three of either."""
    shared = {setting: setting.values_of("training") for setting in results.settings}
    names = row_names(results.settings, without={key for values in shared.values() for key, _ in values})
    table: dict[tuple[DataScenario, SweptValues], dict[str, Setting]] = {}
    for setting, name in names.items():
        table.setdefault((setting.data_scenario, shared[setting]), {})[name] = setting
    rows = ordered_rows(names.items())
    complete = [[by_row[row] for row in rows] for by_row in table.values() if len(by_row) == len(rows)]
    if min(len(rows), len(complete)) < MIN_SIZE:
        return None
    metric_of = metrics_by_data(results.settings)
    scores = [[metric_of[setting.data].score(setting) for setting in settings] for settings in complete]
    scores_by_seed = []
    for settings in complete:
        metric = metric_of[settings[0].data]
        by_draw = [
            dict(zip(s.draws, np.where(s.has_diverged, -np.inf, metric.sign * metric.final(s)), strict=True))
            for s in settings
        ]
        common = [draw for draw in settings[0].draws if all(draw in rule_scores for rule_scores in by_draw)]
        scores_by_seed += [[rule_scores[draw] for rule_scores in by_draw] for draw in common]
    return Ranks(tuple(rows), _rank(scores), _rank(scores_by_seed), len(table) - len(complete))


def _rank(scores: Sequence[Sequence[float]]) -> np.ndarray:
    """Ranks along the rows, 1 for the highest score; a run that has diverged is the worst."""
    from scipy.stats import rankdata

    values = -np.asarray(scores, float)
    return np.asarray(rankdata(np.where(np.isfinite(values), values, np.inf), axis=1)) if len(values) else values


def rank_rows(ranks: Ranks) -> list[dict[str, Any]]:
    """One row a rule, the best first, for ranks.csv."""
    statistic, p_value = ranks.friedman
    by_seed = ranks.seed_ranks if len(ranks.seed_ranks) else np.full((1, len(ranks.rows)), np.nan)
    rows = [
        {
            "rule": row,
            "mean_rank": float(ranks.mean[i]),
            "best_in": int((ranks.scenario_ranks[:, i] == ranks.scenario_ranks.min(axis=1)).sum()),
            "mean_rank_by_seed": float(by_seed[:, i].mean()),
            "num_scenarios": len(ranks.scenario_ranks),
            "num_left_out": ranks.num_left_out,
            "num_seeds": len(ranks.seed_ranks),
            "critical_difference": ranks.critical_difference,
            "friedman_statistic": statistic,
            "friedman_p": p_value,
        }
        for i, row in enumerate(ranks.rows)
    ]
    return sorted(rows, key=lambda row: row["mean_rank"])
