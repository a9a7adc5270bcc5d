"""CFL: clustered federated learning as a defense.

Sattler, Mueller, Wiegand, Samek: "On the Byzantine Robustness of Clustered Federated Learning", ICASSP 2020,
https://doi.org/10.1109/ICASSP40776.2020.9054676
"""

from typing import Annotated

import jax.numpy as jnp

from fedsim.aggregators.geometry import MAX_DISTANCE, cosine_similarities, prim
from fedsim.aggregators.weighting import Weighting, from_weights, weights_by
from fedsim.core.contracts import Aggregator
from fedsim.core.settings import Traced
from fedsim.core.trees import gram_matrix
from fedsim.core.types import Array, CohortReport, Scalar


def cfl(
    *,
    threshold: Annotated[
        Scalar, Traced(ge=-1, le=1), "split the cohort if the largest similarity across the split is below this"
    ] = 0.02,
    weighting: Weighting = "examples",
) -> Aggregator:
    """The mean of the larger of the two groups into which the updates' cosine similarities divide the cohort.

    The bipartition minimizes the largest similarity across it. If that is `threshold` or more, all clients are kept. Of
    two groups of the same size, the one with more examples, or more weight, is kept; of equal ones that of the first
    row, a random client in a simulation.
    """

    def compute_weights(report: CohortReport) -> Array:
        first, similarity = bipartition(cosine_similarities(gram_matrix(report.updates)), report.valid)
        second = report.valid & ~first
        examples = report.num_examples if report.weights is None else report.weights

        def size(group: Array) -> tuple[Array, Array]:
            return jnp.sum(group), jnp.sum(jnp.where(group, examples, 0))

        (n1, m1), (n2, m2) = size(first), size(second)
        larger = jnp.where((n1 > n2) | ((n1 == n2) & (m1 >= m2)), first, second)
        keeps_all = jnp.maximum(similarity, -1.0) >= threshold  # a cosine may be rounded to less
        return weights_by(weighting, jnp.where(keeps_all, report.valid, larger), report)

    return from_weights(compute_weights)


def bipartition(similarity: Array, valid: Array) -> tuple[Array, Array]:
    """Splits the `valid` [K] clients so that the largest `similarity` [K, K] across the split is least.

    Returns one group [K] and that similarity []; a single client gives itself and inf. This is single linkage: the
    weakest edge of the maximum spanning tree is cut. Prim's algorithm adds the client most similar to the tree in each
    step. When it takes the weakest edge of all, no client outside is more similar to any inside, so the clients added
    before that step are one group.
    """
    order, edges = prim(-similarity, valid)
    edges = jnp.where(edges < MAX_DISTANCE, edges, -jnp.inf)
    weakest = jnp.argmax(edges)  # 0 if there is none
    first = jnp.zeros_like(valid).at[order].set((jnp.arange(valid.size) < weakest) | (weakest == 0))
    return first & valid, -edges[weakest]
