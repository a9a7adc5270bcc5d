"""Geometric medians: RFA, robust federated aggregation, and AutoGM, the auto-weighted geometric median.

RFA: Pillutla, Kakade, Harchaoui: "Robust Aggregation for Federated Learning", IEEE Transactions on Signal Processing
2022, https://arxiv.org/abs/1912.13445. AutoGM: Li, Ngai, Voigt: "Byzantine-Robust Aggregation in Federated Learning
Empowered Industrial IoT", IEEE Transactions on Industrial Informatics 2022, https://doi.org/10.1109/TII.2021.3128164
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp

from fedsim.aggregators.arfl_weights import arfl_weights
from fedsim.aggregators.geometry import distances_to_mean, iterate_weights
from fedsim.aggregators.weighting import Weighting, equal_weights, from_weights, normalize, weights_by
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import POSITIVE, Bounds, Traced
from fedsim.core.trees import safe_sqrt, squared_norms
from fedsim.core.types import Array, CohortReport, Scalar


def rfa(
    *,
    num_iters: Annotated[int, Bounds(ge=1), "Weiszfeld iterations"] = 4,
    eps: Annotated[Scalar, Traced(**POSITIVE), "smoothing: distances are at least this"] = 1e-5,
    start: Annotated[Literal["mean", "zero"], "first z: the weighted mean, or zero as in ByzFL"] = "mean",
    weighting: Weighting = "examples",
) -> Aggregator:
    """The geometric median, by the smoothed Weiszfeld algorithm from the weighted mean.

    Minimizes sum_k m_k h(|z - u_k|) over z, h(r) = r for r > eps, else r^2 / (2 eps) + eps / 2. Each of `num_iters`
    iterations averages the updates u_k with weights m_k / max(eps, |z - u_k|); if clients are weighted equally, m_k is
    1. All iterates are convex combinations of the updates, so the algorithm runs on their K x K inner products; after a
    `start` at zero, from the first iteration on.

    >>> import fedsim
    >>> rule = fedsim.aggregators.rfa(num_iters=50)
    >>> update = fedsim.aggregators.apply(rule, [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [99.0, 99.0]]).update
    >>> [round(value, 2) for value in update.tolist()]
    [0.5, 0.5]
    """

    def compute_weights(report: CohortReport) -> Array:
        first = prior = weights_by(weighting, report.valid, report)
        if start == "zero":
            first = normalize(prior / jnp.maximum(eps, safe_sqrt(squared_norms(report.updates))))
        num_steps = num_iters - int(start == "zero")
        return iterate_weights(report, prior, lambda gram: _weiszfeld(gram, prior, eps, num_steps, first))

    return from_weights(compute_weights)


def autogm(
    *,
    lam: Annotated[Scalar, Traced(**POSITIVE), "lambda in units of n, the number of valid clients"] = 1.0,
    num_iters: Annotated[int, Bounds(ge=1), "alternations between weights and geometric median"] = 10,
    num_steps: Annotated[int, Bounds(ge=1), "Weiszfeld iterations in each alternation"] = 10,
    eps: Annotated[Scalar, Traced(**POSITIVE), "smoothing: distances are at least this"] = 1e-6,
) -> Aggregator:
    """Minimizes the sum of alpha_k |z - u_k| plus lambda / 2 |alpha|^2 over z and over alpha, which sums to 1.

    Alternates: for fixed alpha, z is a geometric median, by the smoothed Weiszfeld algorithm; for fixed z, alpha_k is
    max(eta - |z - u_k|, 0) / lambda with the eta for which the sum is 1. These are ARFL's weights, with distances in
    place of losses and one example per client. lambda = `lam` * n is a distance: if it is large, the result is the
    geometric median; if it is small, distant updates get no weight. Starts from alpha = 1 / n and the mean.
    """

    def compute_weights(report: CohortReport) -> Array:
        valid, prior = report.valid, equal_weights(report.valid)

        def alternate(gram: Array) -> Array:
            def iteration(_: Array, weights: Array) -> Array:
                losses = jnp.where(valid, _distances(gram, weights), jnp.inf)
                alpha = arfl_weights(losses, valid.astype(jnp.int32), lam).alpha
                return _weiszfeld(gram, alpha, eps, num_steps, weights)

            return jax.lax.fori_loop(0, num_iters, iteration, _weiszfeld(gram, prior, eps, num_steps, prior))

        return iterate_weights(report, prior, alternate)

    return from_weights(compute_weights)


def _weiszfeld(gram: Array, prior: Array, eps: Scalar, num_steps: int, weights: Array) -> Array:
    """The weights [K] of the geometric median by `prior` [K], after `num_steps` of the algorithm from `weights` [K]."""
    step = lambda _, weights: normalize(prior / jnp.maximum(eps, _distances(gram, weights)))
    return jax.lax.fori_loop(0, num_steps, step, weights)


def _distances(gram: Array, weights: Array) -> Array:
    """The distances [K] of the updates from their mean with `weights` [K], from inner products `gram` [K, K]."""
    return safe_sqrt(distances_to_mean(gram, weights))
