"""The functions that compute the claims, figures and tables of each result."""

from collections.abc import Callable
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
