"""The differential privacy of noisy clipping, from what its rounds record, by Google's dp-accounting.

Wang, Balle, Kasiviswanathan: "Subsampled Rényi Differential Privacy and Analytical Moments Accountant", AISTATS 2019,
https://arxiv.org/abs/1808.00087
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from fedsim.errors import FedsimError, import_extra, pip_install
from fedsim.runs.schemas import INFO

ORDERS = np.asarray([*range(2, 65), 128, 256])
RECORDED = ("sampling_rate", "noise_multiplier", "delta")  # what `norm_clipping` reports each round if it has a delta


def with_epsilon(info: pl.DataFrame) -> pl.DataFrame:
    """The rows of "info" with an "epsilon" for each round that records what it depends on.

    Raises `FedsimError` if dp-accounting is missing.
    """
    recorded = info.filter(pl.col("name").is_in(RECORDED))
    rounds = recorded.pivot("name", index=["run", "round"], values="value").sort("run", "round")
    if not set(RECORDED) <= set(rounds.columns):
        return info
    tables = [info]
    for run in rounds.drop_nulls().partition_by("run"):
        values = epsilons(run["sampling_rate"].to_list(), run["noise_multiplier"].to_list(), run["delta"][0])
        tables.append(run.select("run", "round", name=pl.lit("epsilon"), value=pl.Series(values)).cast(INFO))
    return pl.concat(tables).sort("run", "round", "name")


def epsilons(sampling_rates: Sequence[float], noise_multipliers: Sequence[float], delta: float) -> list[float]:
    """The epsilon after each round of a run."""
    spent = np.cumsum(list(map(_divergence, sampling_rates, noise_multipliers)), axis=0)
    convert = _dp_accounting().rdp.compute_epsilon
    return [float(convert(ORDERS, divergence, delta)[0]) for divergence in spent]


@cache
def _divergence(sampling_rate: float, noise_multiplier: float) -> np.ndarray:
    """The Rényi divergence of a round by order (Theorem 27), or that without sampling if it is smaller."""
    if not sampling_rate:
        return np.zeros(len(ORDERS))
    if not noise_multiplier:
        return np.full(len(ORDERS), np.inf)
    dp = _dp_accounting()
    accountant = dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_ONE)
    event = dp.SampledWithoutReplacementDpEvent(1, sampling_rate, dp.GaussianDpEvent(noise_multiplier))
    return np.minimum(accountant.compose(event).rdp, ORDERS / (2 * noise_multiplier**2))


def _dp_accounting() -> Any:
    missing = f"epsilon: needs dp-accounting to compute it from the rows; {pip_install('privacy')}"
    return import_extra("dp_accounting", FedsimError, missing)
