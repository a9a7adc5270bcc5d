"""Auto-weighting (Sec. 5.6, Fig. 6 and 7): ARFL's weights over rounds, and its final weights compared with FedAvg's."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.paper.claims import Claim, Measurement, Statement, check_all
from fedsim.paper.client_history import ClientHistory
from fedsim.paper.settings import final_accuracy, find_setting, find_settings, read_histories
from fedsim.report import style
from fedsim.report.results import Results
from fedsim.report.weights import LABEL, benign_first, draw_client

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPARED = (("arfl", "shuffling"), ("fedavg", "exclude"), ("fedavg", "shuffling"))


def claims(results: Results) -> list[Claim]:
    """Sec. 5.6 on the weights; the paper does not give the accuracies."""
    return [*check_all(WEIGHT_STATEMENTS, _histories(results) or None), ACCURACY_STATEMENT.check(results)]


def _histories(results: Results) -> list[ClientHistory]:
    """Client histories of ARFL's runs (seeds) under corruption."""
    arfl = find_settings(results, {"server.aggregator": "arfl"})
    setting = next((setting for setting in arfl if setting.corruption != "none"), None)
    histories = read_histories(results, setting) if setting is not None else []
    return [history for history in histories if history.corrupted.any()]


def _becomes_zero(histories: list[ClientHistory]) -> Measurement:
    since = [zero_since(history) for history in histories]
    known = sorted({first for first in since if first is not None})
    rounds = " to ".join(f"{first:,}" for first in dict.fromkeys(known[:1] + known[-1:]))
    never = f"not in {since.count(None)} of {len(since)} runs" if None in since else ""
    texts = [f"after {rounds} of {histories[0].rounds[-1]:,} rounds" if known else "", never]
    return Measurement("; ".join(filter(None, texts)), [first is not None for first in since])


def _is_closer_to_benign(histories: list[ClientHistory]) -> Measurement:
    benign = np.asarray([total_variation(history.alpha[-1], history.benign_fedavg) for history in histories])
    fedavg = np.asarray([total_variation(history.alpha[-1], history.fedavg) for history in histories])
    return Measurement(f"{benign.mean():.3f} and {fedavg.mean():.3f}", fedavg - benign)


def _all_benign_have_weight(histories: list[ClientHistory]) -> Measurement:
    num_weighted = [int((history.alpha[-1] > 0)[~history.corrupted].sum()) for history in histories]
    num_benign = [int((~history.corrupted).sum()) for history in histories]
    pairs = dict.fromkeys(zip(num_weighted, num_benign, strict=True))
    text = ", ".join(f"{weighted} of {benign}" for weighted, benign in pairs)
    return Measurement(text, np.equal(num_weighted, num_benign))


def _accuracies(results: Results) -> Measurement | None:
    settings = [find_setting(results, {"server.aggregator": rule, "corruption.kind": kind}) for rule, kind in COMPARED]
    if None in settings:
        return None
    return Measurement(", ".join(f"{final_accuracy(setting):.2f} %" for setting in settings if setting))


WEIGHT_STATEMENTS = (
    Statement("The corrupted clients' weights become zero and stay zero", "after 350 of 1,000 rounds", _becomes_zero),
    Statement(
        "The final weights are closer to benign FedAvg's than to FedAvg's (total variation)",
        "Fig. 7: similar to benign",
        _is_closer_to_benign,
    ),
    Statement("All benign clients have weight at the end", "Sec. 5.5, at λ = M", _all_benign_have_weight),
)
ACCURACY_STATEMENT = Statement(
    "Accuracy of ARFL, of FedAvg with benign clients only, and of FedAvg", "not given", _accuracies
)


def zero_since(history: ClientHistory) -> int | None:
    """The first evaluated round after which no corrupted client has weight; None if some have weight at the end."""
    weighted = np.flatnonzero((history.alpha[:, history.corrupted] > 0).any(axis=1))
    first = weighted[-1] + 1 if len(weighted) else 0
    return int(history.rounds[first]) if first < len(history.rounds) else None


def total_variation(a: np.ndarray, b: np.ndarray) -> float:
    """Total variation distance of two distributions [N]: 0 if they are equal, 1 if they are disjoint."""
    return float(np.abs(a - b).sum() / 2)


def figures(results: Results) -> dict[str, "Figure"]:
    """The paper's Fig. 6 (weights over rounds) and Fig. 7 (final weights as bars) for the first seed."""
    histories = _histories(results)
    if not histories:
        return {}
    history = histories[0]
    figure, (panel,) = style.panels(1)
    handles: dict[str, Any] = {}
    for client in np.argsort(history.corrupted, kind="stable"):  # benign first
        draw_client(panel, history.rounds, 100 * history.alpha[:, client], bool(history.corrupted[client]), handles)
    style.over_rounds(panel)
    panel.set_ylim(bottom=0)
    return {
        "weights-over-rounds": style.finish(figure, [panel], LABEL, benign_first(handles)),
        "weights": _bars(history),
    }


def _bars(history: ClientHistory) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 3.4))
    panel = figure.subplots()
    bars = (
        ("ARFL", history.alpha[-1], style.COLORS[4]),
        ("FedAvg, benign only", history.benign_fedavg, style.COLORS[0]),
        ("FedAvg", history.fedavg, "0.65"),
    )
    positions = np.arange(len(history.num_examples))
    handles: dict[str, Any] = {}
    for offset, (name, weights, color) in enumerate(bars, start=-1):
        handles[name] = panel.bar(positions + offset * 0.27, 100 * weights, 0.25, color=color)
    panel.set_xticks(positions, [f"{client}*" if bad else f"{client}" for client, bad in enumerate(history.corrupted)])
    panel.set_xlabel("Client (* corrupted)")
    panel.grid(visible=False, axis="x")
    panel.set_ylabel("Weight after the last round (%)")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
    return figure
