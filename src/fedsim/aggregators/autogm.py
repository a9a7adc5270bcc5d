"""AutoGM: the auto-weighted geometric median.

Li, Ngai, Voigt: "Byzantine-Robust Aggregation in Federated Learning Empowered Industrial IoT", IEEE Transactions on
Industrial Informatics 2022, https://doi.org/10.1109/TII.2021.3128164
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.aggregators.arfl_weights import arfl_weights
from fedsim.aggregators.geometry import distances_to_mean, iterate_weights
from fedsim.aggregators.weighting import equal_weights, from_weights, normalize
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import POSITIVE, Bounds, Traced
from fedsim.core.trees import safe_sqrt
from fedsim.core.types import Array, CohortReport, Scalar


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
            def distances(weights: Array) -> Array:
                return safe_sqrt(distances_to_mean(gram, weights))

            def median(alpha: Array, weights: Array) -> Array:
                step = lambda _, w: normalize(alpha / jnp.maximum(eps, distances(w)))
                return jax.lax.fori_loop(0, num_steps, step, weights)

            def iteration(_: Array, weights: Array) -> Array:
                losses = jnp.where(valid, distances(weights), jnp.inf)
                return median(arfl_weights(losses, valid.astype(jnp.int32), lam).alpha, weights)

            return jax.lax.fori_loop(0, num_iters, iteration, median(prior, prior))

        return iterate_weights(report, prior, alternate)

    return from_weights(compute_weights)
