"""What a server computes from its root data: clean examples of its own, on which no client trains."""

import jax
import jax.numpy as jnp

from fedsim.core.client import client_loss
from fedsim.core.contracts import RootEvaluator
from fedsim.core.local import LocalSGD
from fedsim.core.types import Array, ClientData, ClientSlice, Examples, PyTree, Variables


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
