"""The differential privacy of noisy clipping, from what its rounds record, by Google's dp-accounting.

Wang, Balle, Kasiviswanathan: "Subsampled Rényi Differential Privacy and Analytical Moments Accountant", AISTATS 2019,
https://arxiv.org/abs/1808.00087. Poisson sampling: Mironov, Talwar, Zhang: "Rényi Differential Privacy of the Sampled
Gaussian Mechanism", 2019, https://arxiv.org/abs/1908.10530
"""

import logging
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from fedsim.errors import FedsimError, import_extra, pip_install
from fedsim.runs.schemas import INFO

ORDERS = np.asarray([*range(2, 65), 128, 256])
POISSON_ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(11, 64), 128, 256, 512, 1024)  # dp-accounting's default
ALL, LAST = slice(None), slice(-1, None)  # rounds
RECORDED = ("sampling_rate", "noise_multiplier", "delta")  # what `norm_clipping` reports each round if it has a delta
EPSILONS = ("epsilon", "epsilon_poisson")


def with_epsilon(info: pl.DataFrame, rounds: slice = ALL) -> pl.DataFrame:
    """The rows of "info" with two epsilons for each of the `rounds` of a run that records what they depend on.

    "epsilon" is the run's. "epsilon_poisson" is for comparison: that of Poisson sampling at the same rates, if clients
    are added or removed, which moves the mean half as far. Raises `FedsimError` if dp-accounting is missing.
    """
    recorded = info.filter(pl.col("name").is_in(RECORDED))
    by_round = recorded.pivot("name", index=["run", "round"], values="value").sort("run", "round")
    if not set(RECORDED) <= set(by_round.columns):
        return info
    tables = [info]
    for run in by_round.drop_nulls().partition_by("run"):
        rates, multipliers, delta = run["sampling_rate"], run["noise_multiplier"], run["delta"][0]
        values = (epsilons(rates, multipliers, delta, rounds), poisson_epsilons(rates, 2 * multipliers, delta, rounds))
        shown = run.select("run", "round")[rounds]
        for name, of_name in zip(EPSILONS, values, strict=True):
            tables.append(shown.with_columns(name=pl.lit(name), value=pl.Series(of_name)).cast(INFO))
    return pl.concat(tables).sort("run", "round", "name")


def epsilons(
    sampling_rates: Iterable[float], noise_multipliers: Iterable[float], delta: float, rounds: slice = ALL
) -> list[float]:
    """The epsilon after each round for replace-one adjacency and cohorts of fixed size, drawn without replacement.

    A noise multiplier is the noise's deviation over the largest change of the mean, here 2 M / n.
    """
    return _epsilons(ORDERS, map(_divergence, sampling_rates, noise_multipliers), delta, rounds)


def poisson_epsilons(
    sampling_rates: Iterable[float], noise_multipliers: Iterable[float], delta: float, rounds: slice = ALL
) -> list[float]:
    """The epsilon after each round for add-or-remove-one adjacency and Poisson sampling.

    Each client takes part independently with probability `sampling_rate`. A noise multiplier is the noise's deviation
    over M / n, n the expected number of clients, by which the sum of the clipped updates is divided.
    """
    return _epsilons(POISSON_ORDERS, map(poisson_divergence, sampling_rates, noise_multipliers), delta, rounds)


def _epsilons(orders: Iterable[float], of_rounds: Iterable[np.ndarray], delta: float, rounds: slice) -> list[float]:
    convert = _dp_accounting().rdp.compute_epsilon
    spent = np.cumsum(list(of_rounds), axis=0)[rounds]
    return [float(convert(orders, divergence, delta)[0]) for divergence in spent]


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


@cache
def poisson_divergence(
    sampling_rate: float, noise_multiplier: float, orders: tuple[float, ...] = POISSON_ORDERS
) -> np.ndarray:
    """The Rényi divergence of a round of `poisson_epsilons` by order; infinite where its series does not converge."""
    dp = _dp_accounting()
    accountant = dp.rdp.RdpAccountant(orders, dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    event = dp.PoissonSampledDpEvent(sampling_rate, dp.GaussianDpEvent(noise_multiplier))
    logger = logging.getLogger("absl")  # warns of each of these orders, which do no harm: the best order counts
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        return accountant.compose(event).rdp
    finally:
        logger.setLevel(level)


def _dp_accounting() -> Any:
    missing = f"epsilon: needs dp-accounting to compute it from the rows; {pip_install('privacy')}"
    return import_extra("dp_accounting", FedsimError, missing)
