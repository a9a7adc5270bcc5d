"""The weights of single clients over rounds, of each setting's first seed, thinned out to what a page can hold."""

from typing import NamedTuple

import numpy as np
import polars as pl

from fedsim.report.auc import by_run
from fedsim.report.html.packing import pack_shares
from fedsim.report.results import Results
from fedsim.report.weights import thin_out

MIN_ROUNDS, MAX_ROUNDS = 10, 100  # of a setting
MAX_NUMBERS = 2_000_000  # of all settings, above MIN_ROUNDS


class ClientWeights(NamedTuple):
    """The weights of clients in one run. Shapes: T rounds, N clients."""

    setting: int
    kind: str
    """"alpha", among all clients, or "weight", in the round."""
    rounds: list[int]
    """[T]"""
    clients: list[int]
    """[N]"""
    corrupted: list[bool]
    """[N]"""
    num_rounds: int
    """Recorded rounds."""
    num_clients: int
    """Recorded clients."""
    shares: np.ndarray
    """[T, N] uint16"""


def client_weights(results: Results) -> list[ClientWeights]:
    """Those of each setting whose first seed has some."""
    run_clients = by_run(results.clients, len(results.runs))
    recorded = []
    for position, setting in enumerate(results.settings):
        table = run_clients[setting.runs[0]]
        # The weight among all clients, if the rule keeps one.
        kind = next((kind for kind in ("alpha", "weight") if table[kind].count()), None)
        if kind is not None:
            recorded.append((position, kind, table.filter(pl.col(kind).is_not_null())))
    num_clients = sum(len(thin_out(_different(table, "client_id"))) for _, _, table in recorded)
    max_rounds = int(np.clip(MAX_NUMBERS // max(num_clients, 1), MIN_ROUNDS, MAX_ROUNDS))
    return [_thin_out(position, kind, table, max_rounds) for position, kind, table in recorded]


def _different(clients: pl.DataFrame, name: str) -> np.ndarray:
    return np.unique(clients[name].to_numpy())


def _thin_out(setting: int, kind: str, clients: pl.DataFrame, max_rounds: int) -> ClientWeights:
    """At most `max_rounds` evenly spaced rounds, the last among them, of evenly spaced clients."""
    every_round, every_client = _different(clients, "round"), _different(clients, "client_id")
    rounds, ids = every_round, thin_out(every_client)
    if len(rounds) > max_rounds:
        rounds = rounds[np.rint(np.linspace(0, len(rounds) - 1, max_rounds)).astype(int)]
    columns = {name: clients[name].to_numpy() for name in ("round", "client_id", "corrupted", kind)}
    kept = np.isin(columns["round"], rounds) & np.isin(columns["client_id"], ids)
    row, column = np.searchsorted(rounds, columns["round"][kept]), np.searchsorted(ids, columns["client_id"][kept])
    table = np.full((len(rounds), len(ids)), np.nan)
    table[row, column] = columns[kind][kept]
    corrupted = np.zeros(len(ids), bool)
    corrupted[column] = columns["corrupted"][kept]
    lists = rounds.tolist(), ids.tolist(), corrupted.tolist()
    return ClientWeights(setting, kind, *lists, len(every_round), len(every_client), pack_shares(table))
