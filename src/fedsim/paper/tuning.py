"""Tuning lambda (Sec. 5.5, Fig. 5): the clients' weights and the accuracy, over lambda."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsim.paper import select
from fedsim.paper.claims import Claim, claim, not_run
from fedsim.paper.clients import of_run
from fedsim.paper.plots import with_band
from fedsim.report import style
from fedsim.report.cells import Cell, Results
from fedsim.report.weights import LABEL, draw, ordered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEST, ZERO_UP_TO = 1.0, 2.5  # in units of M: best accuracy, and where corrupted clients have no weight
NEAR = 2.0  # factor
TEXTS = (
    ("At the smallest λ a single client has all the weight", "Sec. 5.5: one client"),
    ("Corrupted clients have weight exactly zero for every λ up to 2.5 M", "λ ≤ 2.5 M"),
    ("In between, several clients have weight and no corrupted one has", "Sec. 5.5: sparse solutions"),
    ("At the largest λ every client has weight", "Sec. 5.5: all"),
    ("The accuracy is best inside the range and lower at both its ends", "Fig. 5b"),
    (f"The best λ is M, within a factor of {NEAR:g}", "λ = M"),
    ("At the best λ all benign clients have weight and no corrupted one has", "Sec. 5.5: so at λ = M"),
)


class Point(NamedTuple):
    """A lambda of the sweep. S seeds."""

    lam: float  # in units of M
    cell: Cell
    alpha: np.ndarray  # [S, N] after the last round
    corrupted: np.ndarray  # [S, N]

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
    found = []
    for lam, cell in select.along(results, "arfl.lam", {"server.aggregator": "arfl"}).items():
        clients = [c for run in cell.runs if (c := of_run(results, run)) is not None]
        if clients:
            alpha, corrupted = (np.stack([getattr(c, name) for c in clients]) for name in ("alpha", "corrupted"))
            found.append(Point(float(lam), cell, alpha[:, -1], corrupted))
    return found


def claims(results: Results) -> list[Claim]:
    """What Sec. 5.5 says of the weights and of the best lambda."""
    found = points(results)
    if len(found) < 2 or not any(point.corrupted.any() for point in found):
        return [not_run(*text) for text in TEXTS]
    lams = [point.lam for point in found]
    accuracies = np.asarray([select.final(point.cell) for point in found])
    if np.isnan(accuracies).all():
        return [not_run(*text) for text in TEXTS]
    best = found[int(np.nanargmax(accuracies))]
    zero = [point.lam for point in found if point.is_clean]
    up_to = max((lam for lam in lams if all(other in zero for other in lams if other <= lam)), default=0.0)
    asked = [lam for lam in lams if lam <= ZERO_UP_TO]
    sparse = [point.lam for point in found if point.is_clean and (point.num_weighted > 1).all()]
    ends = [select.final(found[0].cell), select.final(found[-1].cell)]
    most, benign = best.num_weighted.max(), int((~best.corrupted).sum(axis=1).max())
    measured = [
        (f"{numbers(found[0].num_weighted)} at λ = {lams[0]:g} M", (found[0].num_weighted == 1).all()),
        (f"λ ≤ {up_to:g} M" if up_to else "not at the smallest λ", up_to >= max(asked) if asked else None),
        ("λ = " + ", ".join(f"{lam:g}" for lam in sparse) + " M" if sparse else "at no λ", bool(sparse)),
        (f"{numbers(found[-1].num_weighted)} of {best.alpha.shape[1]}", (found[-1].alpha > 0).all()),
        (
            f"{max(accuracies):.2f} % at {best.lam:g} M; {ends[0]:.2f} % and {ends[1]:.2f} % at the ends",
            select.final(best.cell) > max(ends),
        ),
        (f"λ = {best.lam:g} M", BEST / NEAR <= best.lam <= BEST * NEAR),
        (f"{most} clients, {benign} benign ones", best.is_clean and best.weighs_benign),
    ]
    return [claim(*text, *value) for text, value in zip(TEXTS, measured, strict=True)]


def numbers(values: np.ndarray) -> str:
    """For example "3", or "3 to 5" over seeds."""
    return f"{values.min()}" if values.min() == values.max() else f"{values.min()} to {values.max()}"


def figures(results: Results) -> dict[str, "Figure"]:
    """The paper's Fig. 5: weights (of the first seed) and accuracy over lambda."""
    found = points(results)
    if len(found) < 2:
        return {}
    figure, (weights, accuracy) = style.panels(2, share_y=False)
    lams = np.asarray([point.lam for point in found])
    handles: dict[str, Any] = {}
    for client, corrupted in enumerate(found[0].corrupted[0]):
        alpha = np.asarray([100 * point.alpha[0, client] for point in found])
        draw(weights, lams, alpha, bool(corrupted), handles)
    weights.set_ylabel(LABEL)
    with_band(accuracy, lams, [100 * point.cell.accuracy[:, -1] for point in found], style.line(0))
    accuracy.set_ylabel("Test accuracy (%)")
    for panel in (weights, accuracy):
        panel.set_xscale("log")
        panel.set_xlabel("λ / M")
    return {"lambda": style.finish(figure, [], "", ordered(handles))}
