"""What the server computes: on clean examples of its own, its root data, and from an aggregate."""

import jax
import jax.numpy as jnp
import optax

from fedsim.core import require
from fedsim.core.client import client_loss
from fedsim.core.contracts import Algorithm, RootEvaluator
from fedsim.core.local import LocalSGD
from fedsim.core.trees import mask_invalid
from fedsim.core.types import Aggregate, Array, ClientData, ClientSlice, Examples, PyTree, Variables


def root_evaluator(
    examples: Examples, sgd: LocalSGD, variables: Variables, key: Array, loss_batch: int, width: int
) -> RootEvaluator:
    """Evaluates updates of the broadcast `variables` on `examples`, `width` models at a time."""
    size, zero = examples.y.shape[0], jnp.zeros(1, jnp.int32)
    data = ClientData(examples.x, examples.y, zero, zero + size, zero.astype(bool))  # of a single client
    client = ClientSlice(jnp.int32(0), jnp.int32(0), jnp.int32(size))

    def loss(update: PyTree) -> Array:
        model = jax.tree.map(jnp.add, variables, update)
        return client_loss(sgd.task, model, data, client, loss_batch)

    def train() -> PyTree:
        return jax.tree.map(jnp.subtract, sgd.train(variables, data, client, key), variables)

    return RootEvaluator(lambda updates: jax.lax.map(loss, updates, batch_size=width), train)


def train_once(evaluator: RootEvaluator, trains: bool | Array) -> RootEvaluator:
    """The evaluator whose update is trained here, if a rule `trains` [], wherever and however often it is asked for."""
    if trains is False:
        return evaluator
    if trains is True:
        update = evaluator.train()
    else:
        zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(evaluator.train))
        update = jax.lax.cond(trains, evaluator.train, lambda: zeros)
    return evaluator._replace(train=lambda: update)


def rescale(algorithm: Algorithm, aggregate: Aggregate, messages: PyTree, valid: Array) -> Aggregate:
    """Multiplies the aggregated parameters by the algorithm's `scale`, if it has one."""
    if algorithm.scale is None:
        return aggregate
    factor = algorithm.scale(mask_invalid(messages, valid), aggregate.weights)
    require.shape(factor, (), "the factor of scale")
    params = jax.tree.map(lambda u: jnp.asarray(factor, u.dtype) * u, aggregate.update.params)
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
