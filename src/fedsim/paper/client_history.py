"""A run's clients as arrays over its evaluated rounds."""

from typing import NamedTuple

import numpy as np

from fedsim.report.results import Results


class ClientHistory(NamedTuple):
    """Clients of a rule that keeps weights of all clients. T evaluated rounds, N clients."""

    rounds: np.ndarray
    """[T], from 0 if weights before the first round were written."""
    alpha: np.ndarray
    """[T, N] weight among all clients after the round."""
    losses: np.ndarray
    """[T, N] last reported training loss, nats; NaN: none yet, or perhaps not recorded."""
    accuracy: np.ndarray
    """[T, N] on the client's own test examples, 0 to 1; NaN: has none."""
    num_examples: np.ndarray
    """[N] training examples."""
    corrupted: np.ndarray
    """[N] bool."""

    @property
    def fedavg(self) -> np.ndarray:
        """FedAvg's weights m_i / M, [N]."""
        return self.num_examples / self.num_examples.sum()

    @property
    def benign_fedavg(self) -> np.ndarray:
        """The weights m_i / M_B of FedAvg with benign clients only, [N] (Sec. 5.6)."""
        num_examples = np.where(self.corrupted, 0, self.num_examples)
        return num_examples / num_examples.sum()


def read_history(results: Results, run: int) -> ClientHistory | None:
    """The client history of `results.runs[run]`; None if its rule keeps no weights or clients were not recorded."""
    runs = results.clients["run"].to_numpy()
    first, last = np.searchsorted(runs, [run, run + 1])
    table = results.clients.slice(first, last - first)
    rows = {name: table[name].to_numpy() for name in table.columns}
    kept = ~np.isnan(rows["alpha"])
    if not kept.any():
        return None
    rounds, num_clients = np.unique(rows["round"][kept]), int(rows["client_id"].max()) + 1
    num_examples, corrupted = np.zeros(num_clients, int), np.zeros(num_clients, bool)
    num_examples[rows["client_id"]] = rows["num_examples"]
    corrupted[rows["client_id"]] = rows["corrupted"]

    def pivot(name: str) -> np.ndarray:
        values = np.full((len(rounds), num_clients), np.nan)
        values[np.searchsorted(rounds, rows["round"][kept]), rows["client_id"][kept]] = rows[name][kept]
        return values

    losses = _last_reported(rows["round"], rows["client_id"], rows["loss"], rounds, num_clients)
    if results.runs[run].get("record.clients") == "evaluated":  # losses reported in between are unknown
        has_gap = np.maximum.accumulate(np.diff(rounds, prepend=0) > 1)
        losses = np.where(has_gap[:, None], pivot("loss"), losses)
    return ClientHistory(rounds, pivot("alpha"), losses, pivot("test_accuracy"), num_examples, corrupted)


def _last_reported(
    round_: np.ndarray, client: np.ndarray, loss: np.ndarray, rounds: np.ndarray, num_clients: int
) -> np.ndarray:
    """Each client's last reported loss [T, N] up to each of `rounds`; `loss` is NaN in rows without a report."""
    reported = ~np.isnan(loss)
    round_, client, loss = round_[reported], client[reported], loss[reported]
    losses = np.full((len(rounds), num_clients), np.nan)
    order = np.argsort(round_, kind="stable")
    edges = np.searchsorted(round_[order], rounds, side="right")
    last, start = np.full(num_clients, np.nan), 0
    for position, end in enumerate(edges):
        part = order[start:end]
        last[client[part]] = loss[part]  # of several rows of a client, NumPy keeps the last
        losses[position], start = last, end
    return losses
