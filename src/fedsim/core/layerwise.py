"""A rule applied to each array of a model by itself, which is a rule, too."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from fedsim.core import require
from fedsim.core.chain import observe_losses, run_rule
from fedsim.core.contracts import Aggregator, RootEvaluator
from fedsim.core.trees import nonzero
from fedsim.core.types import Aggregate, Array, CohortReport, PyTree, Updates, Variables


class LayerwiseState(NamedTuple):
    """The states of the rule, one for each array."""

    states: tuple[PyTree, ...]
    sizes: Float[Array, " A"]
    """Numbers in each of the A arrays."""


def layerwise(rule: Aggregator) -> Aggregator:
    """The rule that applies `rule`, which may be a chain, to each array of the updates by itself.

    An array is a parameter, such as the weights or the bias of a layer, or one of a model's statistics. Each has a
    state, and random numbers, of its own; a rule that needs root data measures the model after the update of this array
    alone. If `rule` gives no client a weight, the array's update is 0. The weights [K] and alpha [N] are means over the
    arrays, weighted by their sizes. Names in `info` get the path of the array, as in "lam/params/Dense_0/bias".

    Raises `AssertionError` if `rule` is no rule.

    >>> import fedsim
    >>> rule = fedsim.layerwise(fedsim.aggregators.krum(num_byzantine=1))
    >>> layers = {"bias": [[0.0], [1.0], [1.5], [99.0]], "kernel": [[[5.0]], [[5.0]], [[7.0]], [[8.0]]]}
    >>> fedsim.aggregators.apply(rule, {name: jax.numpy.asarray(layer) for name, layer in layers.items()}).weights
    Array([0.5, 0.5, 0. , 0. ], dtype=float32)
    """
    require.instance(rule, Aggregator, "layerwise: rule")

    def init(variables: Variables, num_examples: Array, losses: Array) -> LayerwiseState:
        states = tuple(rule.init(part, num_examples, losses) for part in _split(variables))
        return LayerwiseState(states, jnp.asarray([leaf.size for leaf in jax.tree.leaves(variables)], jnp.float32))

    def aggregate(state: LayerwiseState, report: CohortReport, key: Any) -> tuple[Aggregate, LayerwiseState]:
        updates, root = report.updates, report.measurements
        paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(updates)]
        roots = [None] * len(paths) if root is None else _split_root(root, updates)
        leaves, weights, states = [], [], []
        info: dict[str, Array] = {}
        for i, part in enumerate(_split(updates)):
            own_key = jax.tree.map(lambda k, i=i: jax.random.fold_in(k, i), key)
            own_report = report._replace(updates=part, measurements=None)
            result, next_state = run_rule(rule, state.states[i], own_report, own_key, roots[i])
            (leaf,) = jax.tree.leaves(result.update)
            leaves.append(jnp.where(jnp.any(result.weights > 0), leaf, 0))
            weights.append(result.weights)
            states.append(next_state)
            path = jax.tree_util.keystr(paths[i], simple=True, separator="/")
            info |= {f"{name}/{path}": value for name, value in result.info.items()}
        update = jax.tree.unflatten(jax.tree.structure(updates), leaves)
        return Aggregate(update, _mean(weights, state.sizes), info), LayerwiseState(tuple(states), state.sizes)

    def client_weights(state: LayerwiseState) -> Array | None:
        alphas = [alpha for own in state.states if (alpha := rule.client_weights(own)) is not None]
        return _mean(alphas, state.sizes) if alphas else None

    def observe(state: LayerwiseState, report: CohortReport) -> LayerwiseState:
        return state._replace(states=tuple(observe_losses(rule, own, report) for own in state.states))

    return Aggregator(
        init,
        aggregate,
        client_weights,
        None if rule.observe_losses is None else observe,
        None if rule.measure is None else lambda root, report: root,
    )


def _split(variables: Variables) -> list[Variables]:
    """Each array by itself, in the order of the leaves."""
    params, statistics = map(jax.tree.leaves, variables)
    return [*map(Variables, params), *(Variables((), leaf) for leaf in statistics)]


def _split_root(root: RootEvaluator, updates: Updates) -> list[RootEvaluator]:
    """For each array the root data, with updates of this array alone."""
    leaves, structure = jax.tree.flatten(updates)
    train = cache(lambda: _split(root.train()))

    def evaluator(i: int) -> RootEvaluator:
        def losses(part: Updates) -> Array:
            (own,) = jax.tree.leaves(part)
            parts = [jnp.zeros((len(own), *leaf.shape[1:]), leaf.dtype) for leaf in leaves]
            return root.losses(jax.tree.unflatten(structure, [*parts[:i], own, *parts[i + 1 :]]))

        return RootEvaluator(losses, lambda: train()[i])

    return [evaluator(i) for i in range(len(leaves))]


def _mean(weights: list[Array], sizes: Array) -> Array:
    """The mean of `weights`, those of each array, with the arrays' `sizes`; those that are all zero do not count."""
    every = jnp.stack(weights)
    counted = sizes * jnp.any(every != 0, axis=1)
    return jnp.matmul(counted / nonzero(jnp.sum(counted)), every, precision="highest")
