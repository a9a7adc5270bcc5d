"""LFighter.

Jebreel, Domingo-Ferrer, Sánchez, Blanco-Justicia: "LFighter: Defending against the Label-flipping Attack in Federated
Learning", Neural Networks 2024, https://doi.org/10.1016/j.neunet.2023.11.019; https://arxiv.org/abs/2207.01982
"""

import re
from typing import Annotated

import jax
import jax.numpy as jnp

from fedsim.aggregators.geometry import cosine_similarities, pairwise_distances
from fedsim.aggregators.weighting import WHOLE_MODELS, equal_weights, from_weights
from fedsim.core.contracts import Aggregator
from fedsim.core.selection import ranks
from fedsim.core.trees import distinct_pairs, gram_matrix, leaves_by_path
from fedsim.core.types import Array, CohortReport

MAX_STEPS = 100
"""Of k-means, which takes a few."""


def lfighter(
    *,
    parameters: Annotated[
        str,
        WHOLE_MODELS,
        'the output layer\'s weights are the last matrix with this text in its path; "": the last of all',
    ] = "",
) -> Aggregator:
    """The mean of the better of two clusters of clients, by the output layer's weights of two classes.

    The two classes have the largest sums over clients of the norms of their columns, which are clustered by k-means.
    Of the two clusters, the one with the larger (n_c / n) (1 - mean of s_k) is kept: n_c of the n valid clients are in
    it, and s_k is the least cosine similarity of client k to another one in its cluster, at most 0. Equal ones: the
    cluster of the lowest client id.

    The output layer's weights are the last array of two or more axes (if there is none, the last array) whose path
    contains `parameters`, by path, where Dense_10 follows Dense_2; their last axis is the classes. Of the built-in
    models `char_lstm` needs the `parameters` "Dense_0", and `transformer` has such a layer only if its embedding is not
    `tied`: the last "Dense_...". Raises `ValueError` if no path contains `parameters`.
    """

    def compute_weights(report: CohortReport) -> Array:
        columns = _relevant_columns(leaves_by_path(report.updates, parameters), report.valid)
        groups = two_means(pairwise_distances(report._replace(updates=columns)), report.valid)
        similarity = cosine_similarities(gram_matrix(columns))
        first = groups == groups[jnp.argmin(ranks(report.client_ids, report))]  # the cluster of the lowest id
        clusters = jnp.stack([first & report.valid, ~first & report.valid])
        qualities = [jnp.sum(members) * _dissimilarity(similarity, members) for members in clusters]
        return equal_weights(clusters[jnp.argmax(jnp.stack(qualities))])

    return from_weights(compute_weights)


def _relevant_columns(leaves: dict[str, Array], valid: Array) -> Array:
    """The output layer's weights [K, inputs, 2] of the two classes with the largest norms."""
    matrices = {path: leaf for path, leaf in leaves.items() if leaf.ndim > 2} or leaves
    by_numbers = lambda path: re.sub(r"\d+", lambda number: number[0].zfill(9), path)
    weights = matrices[max(matrices, key=by_numbers)]
    num_classes = (1, *weights.shape[1:])[-1]  # 1 for a scalar
    weights = weights.reshape(valid.size, -1, num_classes).astype(jnp.float32)
    norms = jnp.linalg.norm(weights, axis=1)
    classes = jax.lax.top_k(jnp.sum(norms, axis=0), min(2, norms.shape[1]))[1]
    return weights[:, :, classes]


def _dissimilarity(similarity: Array, members: Array) -> Array:
    """1 minus the mean over `members` [K] of their least `similarity` [K, K] to another member, at most 0."""
    return 1 - equal_weights(members) @ jnp.min(jnp.where(distinct_pairs(members), similarity, 0.0), axis=1)


def two_means(distances: Array, valid: Array) -> Array:
    """One [K] of the two clusters of k-means, from squared `distances` [K, K] of the `valid` [K] clients.

    Lloyd's algorithm runs from K starts, each client with the one farthest from it, and the least sum of squared
    distances to the means wins. The results do not depend on the order of the clients, up to ties.
    """
    farthest = jnp.argmax(jnp.where(valid[None, :], distances, -1.0), axis=1)

    def to_means(groups: Array) -> tuple[Array, Array]:
        """Squared distances [K starts, K] to the means of both clusters."""

        def to_mean(members: Array) -> Array:
            weights = jax.vmap(equal_weights)(members)
            to_all = jnp.matmul(weights, distances, precision="highest")
            spread = jnp.sum(weights * to_all, axis=1, keepdims=True) / 2
            return jnp.where(jnp.any(members, axis=1, keepdims=True), to_all - spread, jnp.inf)

        return to_mean(groups & valid[None, :]), to_mean(~groups & valid[None, :])

    def step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, groups, _ = carry
        first, second = to_means(groups)
        return count + 1, first < second, jnp.any((first < second) != groups)

    start = jnp.asarray(0), distances < distances[farthest], jnp.asarray(True)
    groups = jax.lax.while_loop(lambda carry: (carry[0] < MAX_STEPS) & carry[2], step, start)[1]
    costs = jnp.sum(jnp.where(valid[None, :], jnp.minimum(*to_means(groups)), 0.0), axis=1)
    return groups[jnp.argmin(jnp.where(valid, costs, jnp.inf))]
