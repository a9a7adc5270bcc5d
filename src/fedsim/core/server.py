"""What the server does with an aggregate: the algorithm's factor, and the step of its optimizer."""

import jax
import jax.numpy as jnp
import optax

from fedsim.core import require
from fedsim.core.contracts import Algorithm
from fedsim.core.trees import mask_invalid
from fedsim.core.types import Aggregate, Array, PyTree, Variables


def rescale(algorithm: Algorithm, aggregate: Aggregate, messages: PyTree, valid: Array) -> Aggregate:
    """Multiplies the aggregated parameters by the algorithm's `scale`, if it has one."""
    if algorithm.scale is None:
        return aggregate
    factor = algorithm.scale(mask_invalid(messages, valid), aggregate.weights)
    require.shape(factor, (), "the factor of scale")
    params = jax.tree.map(lambda u: factor.astype(u.dtype) * u, aggregate.update.params)
    return aggregate._replace(update=aggregate.update._replace(params=params))


def server_step(
    optimizer: optax.GradientTransformation, aggregate: Aggregate, variables: Variables, state: PyTree
) -> tuple[Variables, PyTree]:
    """The model and the optimizer's state after a step on the aggregate; unchanged if the round is skipped."""
    params, statistics = variables
    gradient = jax.tree.map(jnp.negative, aggregate.update.params)
    steps, next_state = optimizer.update(gradient, state, params)
    next_statistics = jax.tree.map(jnp.add, statistics, aggregate.update.statistics)  # averages, not optimized
    skipped = jnp.sum(aggregate.weights) == 0
    new, old = (Variables(optax.apply_updates(params, steps), next_statistics), next_state), (variables, state)
    variables, next_state = jax.tree.map(lambda new, old: jnp.where(skipped, old, new), new, old)
    return variables, next_state
