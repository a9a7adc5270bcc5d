"""Tuning lambda (Sec. 5.5, Fig. 5): the clients' weights and the accuracy, over lambda."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsim.paper import select
from fedsim.paper.claims import Claim, Measured, Statement, check_all
from fedsim.paper.clients import of_run
from fedsim.report import style
from fedsim.report.cells import Cell, Results
from fedsim.report.weights import LABEL, draw, ordered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEST, ZERO_UP_TO = 1.0, 2.5  # in units of M: best accuracy, and where corrupted clients have no weight
NEAR = 2.0  # factor


class Point(NamedTuple):
    """A lambda of the sweep. S seeds."""

    lam: float  # in units of M
    cell: Cell
    alpha: np.ndarray  # [S, N] after the last round
    corrupted: np.ndarray  # [S, N]

    @property
    def accuracy(self) -> float:
        """After the last round, in percent."""
        return select.final(self.cell)

    @property
    def is_clean(self) -> bool:
        """Whether no corrupted client has any weight."""
        return bool((self.alpha[self.corrupted] == 0).all())

    @property
    def num_weighted(self) -> np.ndarray:
        """Clients with weight, [S]."""
        return (self.alpha > 0).sum(axis=1)

    @property
    def weighs_benign(self) -> bool:
        """Whether all benign clients have weight."""
        return bool((self.alpha[~self.corrupted] > 0).all())


def points(results: Results) -> list[Point]:
    """ARFL over lambda, in ascending order."""
    sweep = []
    for lam, cell in select.along(results, "arfl.lam", {"server.aggregator": "arfl"}).items():
        clients = [c for run in cell.runs if (c := of_run(results, run)) is not None]
        if clients:
            alpha, corrupted = np.stack([c.alpha for c in clients]), np.stack([c.corrupted for c in clients])
            sweep.append(Point(float(lam), cell, alpha[:, -1], corrupted))
    return sweep


def claims(results: Results) -> list[Claim]:
    """What Sec. 5.5 says of the weights and of the best lambda."""
    sweep = points(results)
    is_sweep = len(sweep) > 1 and any(point.corrupted.any() for point in sweep)
    has_accuracy = not np.isnan([point.accuracy for point in sweep]).all()
    return check_all(STATEMENTS, sweep if is_sweep and has_accuracy else None)


def best(sweep: list[Point]) -> Point:
    """The point with the highest accuracy."""
    return sweep[int(np.nanargmax([point.accuracy for point in sweep]))]


def _single_client(sweep: list[Point]) -> Measured:
    first = sweep[0]
    return Measured(f"{numbers(first.num_weighted)} at λ = {first.lam:g} M", (first.num_weighted == 1).all())


def _zero_up_to(sweep: list[Point]) -> Measured:
    up_to = 0.0
    for point in sweep:
        if not point.is_clean:
            break
        up_to = point.lam
    asked = [point.lam for point in sweep if point.lam <= ZERO_UP_TO]
    text = f"λ ≤ {up_to:g} M" if up_to else "not at the smallest λ"
    return Measured(text, up_to >= max(asked) if asked else None)


def _sparse(sweep: list[Point]) -> Measured:
    sparse = [point.lam for point in sweep if point.is_clean and (point.num_weighted > 1).all()]
    text = f"λ = {', '.join(f'{lam:g}' for lam in sparse)} M" if sparse else "at no λ"
    return Measured(text, bool(sparse))


def _every_client(sweep: list[Point]) -> Measured:
    last = sweep[-1]
    return Measured(f"{numbers(last.num_weighted)} of {last.alpha.shape[1]}", (last.alpha > 0).all())


def _best_inside(sweep: list[Point]) -> Measured:
    top, low, high = best(sweep), sweep[0].accuracy, sweep[-1].accuracy
    text = f"{top.accuracy:.2f} % at {top.lam:g} M; {low:.2f} % and {high:.2f} % at the ends"
    return Measured(text, top.accuracy > max(low, high))


def _best_near(sweep: list[Point]) -> Measured:
    lam = best(sweep).lam
    return Measured(f"λ = {lam:g} M", BEST / NEAR <= lam <= BEST * NEAR)


def _best_weighs_benign(sweep: list[Point]) -> Measured:
    top = best(sweep)
    benign = int((~top.corrupted).sum(axis=1).max())
    text = f"{top.num_weighted.max()} clients, {benign} benign ones"
    return Measured(text, top.is_clean and top.weighs_benign)


STATEMENTS = (
    Statement("At the smallest λ a single client has all the weight", "Sec. 5.5: one client", _single_client),
    Statement(
        f"Corrupted clients have weight exactly zero for every λ up to {ZERO_UP_TO:g} M", "λ ≤ 2.5 M", _zero_up_to
    ),
    Statement(
        "In between, several clients have weight and no corrupted one has", "Sec. 5.5: sparse solutions", _sparse
    ),
    Statement("At the largest λ every client has weight", "Sec. 5.5: all", _every_client),
    Statement("The accuracy is best inside the range and lower at both its ends", "Fig. 5b", _best_inside),
    Statement(f"The best λ is M, within a factor of {NEAR:g}", "λ = M", _best_near),
    Statement(
        "At the best λ all benign clients have weight and no corrupted one has",
        "Sec. 5.5: so at λ = M",
        _best_weighs_benign,
    ),
)


def numbers(values: np.ndarray) -> str:
    """For example "3", or "3 to 5" over seeds."""
    return f"{values.min()}" if values.min() == values.max() else f"{values.min()} to {values.max()}"


def figures(results: Results) -> dict[str, "Figure"]:
    """The paper's Fig. 5: weights (of the first seed) and accuracy over lambda."""
    sweep = points(results)
    if len(sweep) < 2:
        return {}
    figure, (weights, accuracy) = style.panels(2, share_y=False)
    lams = np.asarray([point.lam for point in sweep])
    handles: dict[str, Any] = {}
    for client, corrupted in enumerate(sweep[0].corrupted[0]):
        alpha = np.asarray([100 * point.alpha[0, client] for point in sweep])
        draw(weights, lams, alpha, bool(corrupted), handles)
    weights.set_ylabel(LABEL)
    style.with_band(accuracy, lams, [100 * point.cell.accuracy[:, -1] for point in sweep], style.line(0))
    accuracy.set_ylabel("Test accuracy (%)")
    for panel in (weights, accuracy):
        panel.set_xscale("log")
        panel.set_xlabel("λ / M")
    return {"lambda": style.finish(figure, [], "", ordered(handles))}
