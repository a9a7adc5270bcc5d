"""Norm clipping; with noise, it is also called weak differential privacy.

Sun, Kairouz, Suresh, McMahan: "Can You Really Backdoor Federated Learning?", 2019, https://arxiv.org/abs/1911.07963
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.aggregators.norms import add_noise, clipped_mean
from fedsim.aggregators.weighting import Weighting
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import POSITIVE, OnlyIf, Traced
from fedsim.core.types import Aggregate, Array, CohortReport, PyTree, Scalar


def norm_clipping(
    *,
    threshold: Annotated[Scalar, Traced(ge=POSITIVE["ge"]), "M, largest norm of an update"] = 10.0,
    noise_std: Annotated[
        Scalar | None,
        Traced(ge=0, le=1e30),
        "sigma of the Gaussian noise on each parameter of the mean; default: no noise",
    ] = None,
    weighting: Weighting = "equal",
    delta: Annotated[
        Scalar | None,
        Traced(ge=1e-30, lt=1),
        OnlyIf("server.layerwise", False, "server.layerwise is true: epsilon is known for whole updates only"),
        "record what each round's epsilon of (epsilon, delta) differential privacy depends on; default: do not",
    ] = None,
) -> Aggregator:
    """The mean of the clipped updates plus noise: the sum of u_k min(1, M / |u_k|) over K, plus N(0, sigma^2).

    M = `threshold`, sigma = `noise_std`; a model's statistics get no noise. The recorded weights are a diagnostic, in
    proportion to min(1, M / |u_k|), times m_k if clients are weighted by examples.

    With `delta`, `info` has `delta`, the `sampling_rate` n / N and the `noise_multiplier` sigma n / (2 M), as a client
    moves the mean of n by at most 2 M / n. From these, `Result.info` has the `epsilon` of all rounds so far
    (`fedsim.runs.privacy`), for what the server's models reveal about two federations that differ in one client's data,
    and `epsilon_poisson`, that of Poisson sampling and the addition or removal of a client, to compare with.
    The n clients are drawn from N without replacement, and dropout does not depend on a client's data. The multiplier
    is 0, and epsilon infinite, without noise, if the model has statistics, and if clients are weighted by examples or
    by another rule (`server.weighting`), whose weights depend on all clients' data. epsilon does not hold where a
    client's data change more than its own update (configurations with built-in parts of this kind are refused), nor for
    losses, numbers of examples and other records.
    """

    def init(variables: PyTree, num_examples: Array, losses: Array) -> PyTree:
        return () if delta is None else jnp.sum(num_examples > 0)

    def privacy_info(num_clients: PyTree, report: CohortReport) -> dict[str, Array]:
        if delta is None:
            return {}
        is_unweighted = weighting == "equal" and report.weights is None
        is_private = is_unweighted and not jax.tree.leaves(report.updates.statistics)
        num_valid = jnp.sum(report.valid)
        noise_multiplier = (noise_std if is_private and noise_std is not None else 0.0) * num_valid / (2 * threshold)
        sampling_rate = jnp.minimum(num_valid / jnp.maximum(num_clients, 1), 1.0)
        values = {"sampling_rate": sampling_rate, "noise_multiplier": noise_multiplier, "delta": delta}
        return {name: jnp.asarray(value, jnp.float32) for name, value in values.items()}

    def aggregate(state: PyTree, report: CohortReport, key: Array) -> tuple[Aggregate, PyTree]:
        update, weights = clipped_mean(report, report.valid, threshold, weighting)
        if noise_std is not None:
            update = add_noise(update, jnp.where(jnp.any(report.valid), noise_std, 0.0), key)
        return Aggregate(update, weights, privacy_info(state, report)), state

    return Aggregator(init, aggregate)
