"""The computable terms of Theorem 1's bound, and the objective of Eq. 6 with its optimum (Theorem 2), over rounds."""

from typing import TYPE_CHECKING, Any, NamedTuple

from fedsim.paper import select
from fedsim.paper.claims import Claim, Measured, Statement, check_all
from fedsim.paper.clients import of_run
from fedsim.paper.theory import Terms, terms
from fedsim.report import style
from fedsim.report.cells import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOLERANCE = 1e-4  # of float32 weights: those of small counts at large lambda have the fewest digits


class Point(NamedTuple):
    """A lambda of the sweep."""

    lam: float  # in units of M
    terms: Terms


def points(results: Results) -> list[Point]:
    """The first seed of each of ARFL's cells."""
    sweep = []
    for cell in select.find(results, {"server.aggregator": "arfl"}):
        clients = of_run(results, cell.runs[0])
        if clients is not None and cell.lam and (of_cell := terms(clients, cell.lam)) is not None:
            sweep.append(Point(cell.lam, of_cell))
    return sweep


def claims(results: Results) -> list[Claim]:
    """What Theorem 2 says of each round, checked on what was recorded."""
    return check_all(STATEMENTS, points(results) or None)


def _are_the_minimum(sweep: list[Point]) -> Measured:
    difference = max(point.terms.difference.max() for point in sweep)
    return Measured(f"{difference:.1e}, {_num_rounds(sweep)} rounds", difference <= TOLERANCE)


def _zero_from_threshold(sweep: list[Point]) -> Measured:
    agreed, checked = int(sum(point.terms.agrees.sum() for point in sweep)), _num_rounds(sweep)
    return Measured(f"in {agreed} of {checked} rounds", agreed == checked)


def _num_rounds(sweep: list[Point]) -> int:
    return sum(len(point.terms.rounds) for point in sweep)


def _falls(sweep: list[Point]) -> Measured | None:
    longer = [(point.lam, point.terms.objective) for point in sweep if len(point.terms.rounds) > 1]
    if not longer:
        return None
    texts = [f"λ = {lam:g} M: {objective[0]:.3f} to {objective[-1]:.3f}" for lam, objective in longer]
    return Measured("; ".join(texts), all(objective[-1] < objective[0] for _, objective in longer))


STATEMENTS = (
    Statement(
        f"The weights are the minimum of Eq. 6 for the reported losses, to {TOLERANCE:g}",
        "Theorem 2",
        _are_the_minimum,
    ),
    Statement(
        "A client has no weight exactly if its loss reaches the threshold λ/M_p + p-average",
        "Sec. 4.3",
        _zero_from_threshold,
    ),
    Statement("The objective of Eq. 6 is lower at the end than at the start", "Sec. 4.4: minimised in turns", _falls),
)


def figures(results: Results) -> dict[str, "Figure"]:
    """Four panels over rounds: risk and objective; the norm of the weights; p; p-average loss and threshold."""
    sweep = points(results)
    if not sweep:
        return {}
    figure, panels = style.panels(4, share_y=False)
    of_risk, of_norm, of_number, of_loss = panels
    handles: dict[str, Any] = {}
    for position, (lam, of_point) in enumerate(sweep[: style.MAX_LINES]):
        colour = style.COLOURS[position % len(style.COLOURS)]
        handles[f"λ = {lam:g} M"] = of_risk.plot(of_point.rounds, of_point.objective, color=colour)[0]
        of_risk.plot(of_point.rounds, of_point.risk, "--", color=colour)
        of_norm.plot(of_point.rounds, of_point.norm, color=colour)
        of_number.plot(of_point.rounds, of_point.num_weighted, color=colour)
        of_loss.plot(of_point.rounds, of_point.threshold, color=colour)
        of_loss.plot(of_point.rounds, of_point.average_loss, "--", color=colour)
    of_risk.set_title("Objective (Eq. 6), and risk Σαᵢℒᵢ (dashed)")
    of_norm.set_title("√(Σαᵢ²/mᵢ)")
    of_number.set_title("p, clients with weight")
    of_number.set_ylim(bottom=0)
    of_loss.set_title("Threshold, and p-average loss (dashed)")
    for panel in panels:
        style.over_rounds(panel)
    for panel in (of_risk, of_loss):
        panel.set_yscale("log")
        panel.set_ylabel("nats")
    return {"bound": style.finish(figure, [], "", handles)}
