"""Fairness (Sec. 6): the benign client that is hardest to learn, its accuracy and its weight, over lambda."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsim.paper import select
from fedsim.paper.claims import Claim, claim, not_run
from fedsim.paper.clients import Clients, of_run
from fedsim.paper.plots import with_band
from fedsim.report import style
from fedsim.report.cells import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_COUNT = 10  # training examples of a client that may be called the hardest
TEXTS = (
    ("At the smallest λ the hardest benign client has less weight than the mean benign one", "Sec. 6"),
    ("It has less weight at the smallest λ than at the largest", "Sec. 6"),
    ("Its accuracy is lower at the smallest λ than at the largest", "not given"),
)


class Point(NamedTuple):
    """A lambda of the sweep. S seeds; accuracies from 0 to 1, weights relative to FedAvg's m_i / M."""

    lam: float  # in units of M
    hardest_accuracy: np.ndarray  # [S]
    mean_accuracy: np.ndarray  # [S] over benign clients
    hardest_weight: np.ndarray  # [S]
    mean_weight: np.ndarray  # [S] over benign clients


def points(results: Results) -> list[Point]:
    """ARFL over lambda, in ascending order; the hardest client of a seed is chosen at the largest lambda."""
    cells = select.along(results, "arfl.lam", {"server.aggregator": "arfl"})
    clients = {lam: [of_run(results, run) for run in cell.runs] for lam, cell in cells.items()}
    known = {lam: [c for c in found if c is not None] for lam, found in clients.items()}
    lams = [lam for lam, found in known.items() if len(found) == len(next(iter(known.values())))]
    if not lams or not known[lams[-1]]:
        return []
    chosen = [hardest(of_seed) for of_seed in known[lams[-1]]]
    if None in chosen:
        return []
    return [_point(float(lam), known[lam], [client for client in chosen if client is not None]) for lam in lams]


def hardest(clients: Clients) -> int | None:
    """The benign client with the lowest accuracy on its own test examples at the end, of those with enough examples."""
    able = ~clients.corrupted & (clients.counts >= MIN_COUNT) & ~np.isnan(clients.accuracy[-1])
    return int(np.flatnonzero(able)[np.argmin(clients.accuracy[-1][able])]) if able.any() else None


def _point(lam: float, found: list[Clients], chosen: list[int]) -> Point:
    columns = []
    for clients, client in zip(found, chosen, strict=True):
        benign = ~clients.corrupted & (clients.counts > 0)
        weight = np.divide(clients.alpha[-1], clients.fedavg, out=np.zeros(len(benign)), where=clients.counts > 0)
        accuracy = clients.accuracy[-1]
        columns.append((accuracy[client], np.nanmean(accuracy[benign]), weight[client], weight[benign].mean()))
    return Point(lam, *np.asarray(columns).T)


def claims(results: Results) -> list[Claim]:
    """A client that is hard to learn carries less weight at a small lambda."""
    found = points(results)
    if len(found) < 2:
        return [not_run(*text) for text in TEXTS]
    small, large = found[0], found[-1]
    weight = small.hardest_weight.mean(), small.mean_weight.mean(), large.hardest_weight.mean()
    accuracy = 100 * small.hardest_accuracy.mean(), 100 * large.hardest_accuracy.mean()
    told = [
        f"{weight[0]:.2f} and {weight[1]:.2f} of FedAvg's, λ = {small.lam:g} M",
        f"{weight[0]:.2f} and {weight[2]:.2f} of FedAvg's, λ = {small.lam:g} M and {large.lam:g} M",
        f"{accuracy[0]:.1f} % and {accuracy[1]:.1f} %",
    ]
    holds = [weight[0] < weight[1], weight[0] < weight[2], accuracy[0] < accuracy[1]]
    return [claim(*text, *value) for text, *value in zip(TEXTS, told, holds, strict=True)]


def figures(results: Results) -> dict[str, "Figure"]:
    """Accuracy and weight over lambda, of the hardest and of the mean benign client; bands over seeds."""
    found = points(results)
    if len(found) < 2:
        return {}
    lams = np.asarray([point.lam for point in found])
    figure, panels = style.panels(2, share_y=False)
    handles: dict[str, Any] = {}
    for position, (name, prefix) in enumerate((("mean benign client", "mean"), ("hardest benign client", "hardest"))):
        look = style.line(position) | {"marker": "o"}
        accuracy, weight = ([getattr(point, f"{prefix}_{what}") for point in found] for what in ("accuracy", "weight"))
        handles[name] = with_band(panels[0], lams, [100 * values for values in accuracy], look)
        with_band(panels[1], lams, weight, look)
    for panel, label in zip(panels, ("Accuracy on own test examples (%)", "Weight α relative to m/M"), strict=True):
        panel.set_xscale("log")
        panel.set_xlabel("λ / M")
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0)
    return {"fairness": style.finish(figure, [], "", handles)}
