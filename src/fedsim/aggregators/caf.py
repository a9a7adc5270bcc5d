"""CAF: the covariance-bound agnostic filter.

Allouah, Guerraoui, Stephan: "Towards Trustworthy Federated Learning with Untrusted Participants", ICML 2025,
https://arxiv.org/abs/2505.01874
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.aggregators.geometry import gram_around_mean, pairwise_distances, top_eigenpair
from fedsim.aggregators.weighting import (
    MINORITY,
    NumByzantine,
    assumed_byzantine,
    equal_weights,
    from_weights,
    normalize,
)
from fedsim.core.contracts import Aggregator
from fedsim.core.types import Array, CohortReport


def caf(*, num_byzantine: Annotated[NumByzantine, MINORITY] = None) -> Aggregator:
    """The weighted mean with the least top eigenvalue of the covariance, as outliers are gradually down-weighted.

    Starts with c_k = 1. mu is the mean with weights c, and v the top eigenvector of the weighted covariance around mu,
    with eigenvalue lambda; c_k <- c_k (1 - t_k / max t) with t_k = <u_k - mu, v>^2, while the sum of c is above K - 2
    f. The update is the mu with the least lambda. max t is over clients with c_k > 0, so each step excludes at least
    one.

    f = `num_byzantine`, which only decides when to stop; K is the number of valid clients. f is clipped to 2 f < K, and
    f = 0 gives the mean. The covariance is not formed: its eigenvectors follow from the K x K inner products. Raises
    `ValueError` if 2 f >= K for the whole cohort.
    """

    def compute_weights(report: CohortReport) -> Array:
        min_sum = jnp.sum(report.valid) - 2 * assumed_byzantine(num_byzantine, report)
        # A loop of unknown length has no gradient: to attacks that ascend, the weights do not depend on the updates.
        distances = jax.lax.stop_gradient(pairwise_distances(report))

        def step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            c, best, least = carry
            weights = normalize(c)
            roots, gram = jnp.sqrt(weights), gram_around_mean(distances, weights)
            eigenvalue, vector = top_eigenpair(roots[:, None] * gram * roots[None, :])
            is_better = eigenvalue < least
            projections = jnp.matmul(gram, roots * vector, precision="highest")  # on v, times the root of lambda
            roots_of_t = jnp.where(c > 0, jnp.abs(projections), 0.0)
            _, exponent = jnp.frexp(jnp.max(roots_of_t))  # a unit for t in which no square leaves the range of float32
            t = jnp.square(jnp.ldexp(roots_of_t, -exponent))
            t_max = jnp.max(t)
            # Exactly 0 where t is largest: a rounded quotient could leave a rest, and the same client would be largest.
            c = jnp.where(t < t_max, c * jnp.maximum(1 - t / t_max, 0.0), 0.0)
            return c, jnp.where(is_better, weights, best), jnp.where(is_better, eigenvalue, least)

        start = report.valid.astype(jnp.float32), equal_weights(report.valid), jnp.asarray(jnp.inf)
        return jax.lax.while_loop(lambda carry: jnp.sum(carry[0]) > min_sum, step, start)[1]

    return from_weights(compute_weights)
