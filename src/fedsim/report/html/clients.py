"""The weights of single clients over rounds, thinned out to what a page can hold."""

from typing import Any

import numpy as np
import polars as pl

from fedsim.report.compare import IS_BYZANTINE
from fedsim.report.results import Results
from fedsim.report.weights import thin_out

MAX_ROUNDS = 100  # of a setting
MAX_NUMBERS = 100_000  # of all settings


def client_weights(results: Results) -> list[dict[str, Any] | None]:
    """For each setting, the weight in percent of each client over the rounds of its first run; None: not recorded."""
    runs = [setting.runs[0] for setting in results.settings]
    of_run = results.clients.filter(pl.col("run").is_in(runs)).partition_by("run", as_dict=True)
    max_numbers = MAX_NUMBERS // max(len(of_run), 1)
    return [_weights(of_run[run,], max_numbers) if (run,) in of_run else None for run in runs]


def _weights(clients: pl.DataFrame, max_numbers: int) -> dict[str, Any] | None:
    """Those among all clients ("alpha"), if the rule keeps them, else those in the round ("weight")."""
    kind = next((kind for kind in ("alpha", "weight") if clients[kind].count()), None)
    if kind is None:
        return None
    measured = clients.drop_nulls(kind).sort("round", "client_id")
    every_client, every_round = (measured[name].unique().sort().to_numpy() for name in ("client_id", "round"))
    ids = thin_out(every_client)
    num_rounds = min(MAX_ROUNDS, max(max_numbers // len(ids), 5), len(every_round))
    rounds = every_round[np.rint(np.linspace(0, len(every_round) - 1, num_rounds)).astype(int)]
    shown = measured.filter(pl.col("client_id").is_in(ids), pl.col("round").is_in(rounds))
    names = [name for name in ("client_name", "client_id") if name in shown.columns]
    shown = shown.with_columns(client=pl.coalesce(pl.col(name).cast(str) for name in names))
    lines = shown.with_columns((pl.col(kind) * 100).round(3)).pivot("client_id", index="round", values=kind)
    lines = pl.DataFrame({"round": rounds}, {"round": lines["round"].dtype}).join(lines, on="round", how="left")
    name_of = dict(shown.select(pl.col("client_id").cast(str), "client").unique().iter_rows())
    byzantine = shown.group_by("client").agg(IS_BYZANTINE.any().alias("is_byzantine"))
    return {
        "label": "Weight α among all clients (%)" if kind == "alpha" else "Weight in the round (%)",
        "rounds": lines["round"].to_list(),
        "clients": {name_of[client]: values for client, values in lines.drop("round").to_dict(as_series=False).items()},
        "byzantine": byzantine.filter("is_byzantine")["client"].sort().to_list(),
        "note": f"{lines.width - 1} of {len(every_client)} clients, {num_rounds} of {len(every_round)} recorded rounds",
    }
