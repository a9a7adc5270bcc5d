"""The computable terms of Theorem 1's bound, and the objective of Eq. 6 with its optimum (Theorem 2), over rounds."""

from typing import TYPE_CHECKING, Any

from fedsim.paper import select
from fedsim.paper.claims import Claim, claim, not_run
from fedsim.paper.clients import of_run
from fedsim.paper.theory import Terms, terms
from fedsim.report import style
from fedsim.report.cells import Cell, Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOLERANCE = 1e-4  # of float32 weights: those of small counts at large lambda have the fewest digits
TEXTS = (
    (f"The weights are the minimum of Eq. 6 for the reported losses, to {TOLERANCE:g}", "Theorem 2"),
    ("A client has no weight exactly if its loss reaches the threshold λ/M_p + p-average", "Sec. 4.3"),
    ("The objective of Eq. 6 is lower at the end than at the start", "Sec. 4.4: minimised in turns"),
)


def _all(results: Results) -> list[tuple[Cell, Terms]]:
    """Of the first seed of each of ARFL's cells."""
    found = []
    for cell in select.find(results, {"server.aggregator": "arfl"}):
        clients = of_run(results, cell.runs[0])
        told = terms(clients, float(cell.lam or 0)) if clients is not None and cell.lam else None
        if told is not None:
            found.append((cell, told))
    return found


def claims(results: Results) -> list[Claim]:
    """What Theorem 2 says of each round, checked on what was recorded."""
    found = _all(results)
    if not found:
        return [not_run(*text) for text in TEXTS]
    difference = max(told.difference.max() for _, told in found)
    checked, agreed = (
        int(sum(f(told) for _, told in found)) for f in (lambda t: len(t.rounds), lambda t: t.agrees.sum())
    )
    falls = [(cell.lam, told.objective[0], told.objective[-1]) for cell, told in found if len(told.rounds) > 1]
    made = [
        claim(*TEXTS[0], f"{difference:.1e}, {checked} rounds", difference <= TOLERANCE),
        claim(*TEXTS[1], f"in {agreed} of {checked} rounds", agreed == checked),
    ]
    told = "; ".join(f"λ = {lam:g} M: {first:.3f} to {last:.3f}" for lam, first, last in falls)
    holds = all(last < first for _, first, last in falls)
    return [*made, claim(*TEXTS[2], told, holds) if falls else not_run(*TEXTS[2])]


def figures(results: Results) -> dict[str, "Figure"]:
    """Four panels over rounds: risk and objective; the norm of the weights; p; p-average loss and threshold."""
    found = _all(results)
    if not found:
        return {}
    figure, panels = style.panels(4, share_y=False)
    handles: dict[str, Any] = {}
    for position, (cell, told) in enumerate(found[: style.MAX_LINES]):
        colour = style.COLOURS[position % len(style.COLOURS)]
        pairs = (
            (told.objective, told.risk),
            (told.norm, None),
            (told.num_weighted, None),
            (told.threshold, told.average_loss),
        )
        for panel, (solid, dashed) in zip(panels, pairs, strict=True):
            handles[f"λ = {cell.lam:g} M"] = panel.plot(told.rounds, solid, color=colour)[0]
            if dashed is not None:
                panel.plot(told.rounds, dashed, "--", color=colour)
    titles = (
        "Objective (Eq. 6), and risk Σαᵢℒᵢ (dashed)",
        "√(Σαᵢ²/mᵢ)",
        "p, clients with weight",
        "Threshold, and p-average loss (dashed)",
    )
    for panel, title in zip(panels, titles, strict=True):
        panel.set_title(title)
        style.over_rounds(panel)
    panels[2].set_ylim(bottom=0)
    for panel in (panels[0], panels[3]):
        panel.set_yscale("log")
        panel.set_ylabel("nats")
    return {"bound": style.finish(figure, [], "", handles)}
