"""Auto-weighting (Sec. 5.6, Fig. 6 and 7): ARFL's weights over rounds, and at the end beside FedAvg's."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.paper import select
from fedsim.paper.claims import Claim, claim, not_run
from fedsim.paper.clients import Clients, of_run
from fedsim.report import style
from fedsim.report.cells import Results
from fedsim.report.weights import LABEL, draw, ordered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEXTS = (
    ("The corrupted clients' weights become zero and stay there", "after 350 of 1,000 rounds"),
    ("The final weights are nearer to benign FedAvg's than to FedAvg's (total variation)", "Fig. 7: similar to benign"),
    ("All benign clients have weight at the end", "Sec. 5.5, at λ = M"),
)
ACCURACY = ("Accuracy of ARFL, of FedAvg with benign clients only, and of FedAvg", "not given")


def claims(results: Results) -> list[Claim]:
    """What Sec. 5.6 says of the weights; and the accuracies, of which it says nothing."""
    return [*_of_weights(_clients(results)), _of_accuracy(results)]


def _clients(results: Results) -> list[Clients]:
    """The clients of ARFL's runs (seeds) under corruption."""
    cell = next((c for c in select.find(results, {"server.aggregator": "arfl"}) if c.corruption != "none"), None)
    found = [] if cell is None else [c for run in cell.runs if (c := of_run(results, run)) is not None]
    return [clients for clients in found if clients.corrupted.any()]


def _of_weights(found: list[Clients]) -> list[Claim]:
    if not found:
        return [not_run(*text) for text in TEXTS]
    since = [zero_since(clients) for clients in found]
    told = [f"after {round_:,}" if round_ is not None else "never" for round_ in since]
    benign = [total_variation(clients.alpha[-1], clients.benign_fedavg) for clients in found]
    fedavg = [total_variation(clients.alpha[-1], clients.fedavg) for clients in found]
    with_weight = [int((clients.alpha[-1] > 0)[~clients.corrupted].sum()) for clients in found]
    of = [int((~clients.corrupted).sum()) for clients in found]
    measured = [
        (f"{', '.join(told)} of {found[0].rounds[-1]:,} rounds", None not in since),
        (f"{np.mean(benign):.3f} and {np.mean(fedavg):.3f}", np.mean(benign) < np.mean(fedavg)),
        (", ".join(f"{n} of {m}" for n, m in zip(with_weight, of, strict=True)), with_weight == of),
    ]
    return [claim(*text, *value) for text, value in zip(TEXTS, measured, strict=True)]


def _of_accuracy(results: Results) -> Claim:
    wanted = [("arfl", "shuffling"), ("fedavg", "exclude"), ("fedavg", "shuffling")]
    cells = [select.one(results, {"server.aggregator": rule, "corruption.kind": kind}) for rule, kind in wanted]
    if None in cells:
        return not_run(*ACCURACY)
    return claim(*ACCURACY, ", ".join(f"{select.final(cell):.2f} %" for cell in cells if cell), None)


def zero_since(clients: Clients) -> int | None:
    """The first evaluated round from which on no corrupted client has any weight; None: they have at the end."""
    weighted = np.flatnonzero((clients.alpha[:, clients.corrupted] > 0).any(axis=1))
    first = weighted[-1] + 1 if len(weighted) else 0
    return int(clients.rounds[first]) if first < len(clients.rounds) else None


def total_variation(a: np.ndarray, b: np.ndarray) -> float:
    """Half the sum of absolute differences of two distributions [N]: 0 the same, 1 nothing in common."""
    return float(np.abs(a - b).sum() / 2)


def figures(results: Results) -> dict[str, "Figure"]:
    """The paper's Fig. 6 (weights over rounds) and Fig. 7 (final weights as bars), of the first seed."""
    found = _clients(results)
    if not found:
        return {}
    clients = found[0]
    order = np.argsort(clients.corrupted, kind="stable")  # benign first
    figure, (panel,) = style.panels(1)
    handles: dict[str, Any] = {}
    for client in order:
        draw(panel, clients.rounds, 100 * clients.alpha[:, client], bool(clients.corrupted[client]), handles)
    style.over_rounds(panel)
    panel.set_ylim(bottom=0)
    return {"weights-over-rounds": style.finish(figure, [panel], LABEL, ordered(handles)), "weights": _bars(clients)}


def _bars(clients: Clients) -> "Figure":
    from matplotlib.figure import Figure

    bars = {"ARFL": clients.alpha[-1], "FedAvg, benign only": clients.benign_fedavg, "FedAvg": clients.fedavg}
    colours = dict(zip(bars, (style.COLOURS[4], style.COLOURS[0], "0.65"), strict=True))
    figure = Figure(figsize=(5.5, 3.4))
    panel = figure.subplots()
    places = np.arange(len(clients.counts))
    handles: dict[str, Any] = {}
    for position, (name, weights) in enumerate(bars.items()):
        x = places + (position - 1) * 0.27
        handles[name] = panel.bar(x, 100 * weights, 0.25, color=colours[name])
    panel.set_xticks(places, [f"{i}*" if bad else f"{i}" for i, bad in enumerate(clients.corrupted)])
    panel.set_xlabel("Client (* corrupted)")
    panel.grid(visible=False, axis="x")
    panel.set_ylabel("Weight after the last round (%)")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
    return figure
