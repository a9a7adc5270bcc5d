"""Fairness (Sec. 6): accuracy and weight of the benign client that is hardest to learn, over lambda."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsim.paper.claims import Claim, Measurement, Statement, check_all
from fedsim.paper.client_history import ClientHistory
from fedsim.paper.figures import set_lambda_axes
from fedsim.paper.settings import read_histories, settings_by_lam
from fedsim.report import style
from fedsim.report.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_EXAMPLES = 10
"""Training examples that the hardest client must have."""


class HardestClient(NamedTuple):
    """The hardest client at a lambda. S seeds; accuracies from 0 to 1, weights relative to FedAvg's m_i / M."""

    lam: float
    """In units of M."""
    accuracy: np.ndarray
    """[S]"""
    mean_accuracy: np.ndarray
    """[S] over benign clients."""
    weight: np.ndarray
    """[S]"""
    mean_weight: np.ndarray
    """[S] over benign clients."""


def compute_hardest_clients(results: Results) -> list[HardestClient]:
    """ARFL over lambda, in ascending order; a seed's hardest client is chosen at the largest lambda."""
    settings = settings_by_lam(results)
    draws = next((setting.draws for setting in settings.values()), ())
    histories = {lam: read_histories(results, each) for lam, each in settings.items() if each.draws == draws}
    histories = {lam: runs for lam, runs in histories.items() if len(runs) == len(draws)}
    if not histories:
        return []
    hardest = [find_hardest(history) for history in histories[max(histories)]]
    clients = [client for client in hardest if client is not None]
    return [_summarize(lam, runs, clients) for lam, runs in histories.items()] if len(clients) == len(hardest) else []


def find_hardest(history: ClientHistory) -> int | None:
    """The benign client with the lowest final accuracy on its own test examples, of those with enough examples."""
    eligible = ~history.corrupted & (history.num_examples >= MIN_EXAMPLES) & ~np.isnan(history.accuracy[-1])
    return int(np.flatnonzero(eligible)[np.argmin(history.accuracy[-1][eligible])]) if eligible.any() else None


def _summarize(lam: float, histories: list[ClientHistory], clients: list[int]) -> HardestClient:
    columns = []
    for history, client in zip(histories, clients, strict=True):
        has_data = history.num_examples > 0
        benign = ~history.corrupted & has_data
        weight = np.divide(history.alpha[-1], history.fedavg, out=np.zeros(len(benign)), where=has_data)
        accuracy = history.accuracy[-1]
        columns.append((accuracy[client], np.nanmean(accuracy[benign]), weight[client], weight[benign].mean()))
    return HardestClient(lam, *np.asarray(columns).T)


def claims(results: Results) -> list[Claim]:
    """A client that is hard to learn has less weight at a small lambda."""
    sweep = compute_hardest_clients(results)
    return check_all(STATEMENTS, *((sweep[0], sweep[-1]) if len(sweep) > 1 else (None,)))


def _has_less_than_mean(smallest: HardestClient, _: HardestClient) -> Measurement:
    weight, mean = smallest.weight, smallest.mean_weight
    text = f"{weight.mean():.2f} and {mean.mean():.2f} of FedAvg's, λ = {smallest.lam:g} M"
    return Measurement(text, mean - weight, "of FedAvg's")


def _has_less_than_at_largest(smallest: HardestClient, largest: HardestClient) -> Measurement:
    small, large, lams = smallest.weight, largest.weight, f"λ = {smallest.lam:g} M and {largest.lam:g} M"
    return Measurement(f"{small.mean():.2f} and {large.mean():.2f} of FedAvg's, {lams}", large - small, "of FedAvg's")


def _is_less_accurate(smallest: HardestClient, largest: HardestClient) -> Measurement:
    small, large = 100 * smallest.accuracy, 100 * largest.accuracy
    return Measurement(f"{small.mean():.1f} % and {large.mean():.1f} %", large - small, "points")


STATEMENTS = (
    Statement(
        "At the smallest λ the hardest benign client has less weight than the mean benign client",
        "Sec. 6",
        _has_less_than_mean,
    ),
    Statement("It has less weight at the smallest λ than at the largest", "Sec. 6", _has_less_than_at_largest),
    Statement("Its accuracy is lower at the smallest λ than at the largest", "not given", _is_less_accurate),
)


def figures(results: Results) -> dict[str, "Figure"]:
    """Accuracy and weight over lambda, of the hardest and of the mean benign client; bands over seeds."""
    sweep = compute_hardest_clients(results)
    if len(sweep) < 2:
        return {}
    lams = np.asarray([point.lam for point in sweep])
    figure, (accuracy, weight) = style.panels(2, share_y=False)
    handles: dict[str, Any] = {}
    values = {
        "mean benign client": [(100 * point.mean_accuracy, point.mean_weight) for point in sweep],
        "hardest benign client": [(100 * point.accuracy, point.weight) for point in sweep],
    }
    for position, (name, pairs) in enumerate(values.items()):
        look = style.line(position) | {"marker": "o"}
        accuracies, weights = zip(*pairs, strict=True)
        handles[name] = style.with_band(accuracy, lams, accuracies, look)
        style.with_band(weight, lams, weights, look)
    accuracy.set_ylabel("Accuracy on own test examples (%)")
    weight.set_ylabel("Weight α relative to m/M")
    set_lambda_axes((accuracy, weight))
    for panel in (accuracy, weight):
        panel.set_ylim(bottom=0)
    return {"fairness": style.finish(figure, [], "", handles)}
