"""The functions that compute the claims, figures and tables of each result."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fedsim.paper import (
    autoweight,
    bound,
    convergence,
    fairness,
    fraction,
    heterogeneity,
    introductory_example,
    lambda_sweep,
    limits,
    table2,
)
from fedsim.paper.claims import Claim
from fedsim.report.results import Results
from fedsim.report.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Analysis(NamedTuple):
    """Functions of a result's run folder."""

    claims: Callable[[Results], list[Claim]]
    figures: Callable[[Results], dict[str, "Figure"]] = lambda results: {}
    """Figures by name, in addition to those of every report."""
    tables: Callable[[Results], list[Table]] = lambda results: []
    """Tables in addition to those of every report."""


TABLE2 = Analysis(table2.claims, table2.figures, table2.tables)

ANALYSES = {
    "intro": Analysis(introductory_example.claims, introductory_example.figures),
    "table2-cifar10": TABLE2,
    "table2-femnist": TABLE2,
    "table2-shakespeare": TABLE2,
    "table2-digits": TABLE2,
    "convergence": Analysis(convergence.claims, convergence.figures),
    "convergence-digits": Analysis(convergence.claims, convergence.figures),
    "fraction-femnist": Analysis(fraction.femnist_claims),
    "fraction": Analysis(fraction.claims, fraction.figures),
    "heterogeneity": Analysis(heterogeneity.claims, heterogeneity.figures),
    "lambda": Analysis(lambda_sweep.claims, lambda_sweep.figures),
    "autoweight": Analysis(autoweight.claims, autoweight.figures),
    "limits": Analysis(limits.claims, tables=limits.tables),
    "fairness": Analysis(fairness.claims, fairness.figures),
    "bound": Analysis(bound.claims, bound.figures),
}


def check_claims(analysis: Analysis, results: Results) -> list[Claim]:
    """The claims of a result; of several splits, margins are over these.

    If all settings have the same splits and seeds, a claim is checked for each run, then summarized for each split;
    else on the means over the seeds of each split.
    """
    if _num_splits(results) == 1:
        return analysis.claims(results)
    draws, *others = {setting.draws for setting in results.settings}
    if not others:
        splits = [split for split, _ in draws]
        numbered = [replace(setting, seeds=tuple(range(len(draws)))) for setting in results.settings]
        claims = analysis.claims(replace(results, settings=numbered))
        if all(claim.margin is None or len(claim.margin.values) == len(splits) for claim in claims):
            return [replace(claim, margin=claim.margin and claim.margin.over_splits(splits)) for claim in claims]
    over_splits = lambda margin: margin and replace(margin, over="split")
    claims = analysis.claims(with_split_means(results))
    return [replace(claim, margin=over_splits(claim.margin)) for claim in claims]


def with_split_means(results: Results) -> Results:
    """The results with means over the seeds of each split, which then stands for a seed; as they are with one split.

    Histories of clients are those of the first seed of each split.
    """
    if _num_splits(results) == 1:
        return results
    means = [setting.per_split() for setting in results.settings]
    return replace(results, settings=[replace(setting, seeds=setting.splits) for setting in means])


def _num_splits(results: Results) -> int:
    return len({split for setting in results.settings for split in setting.splits})
