"""Softmax regression on four clients: a small federation for checks that run whole rounds."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.aggregators import fedavg
from fedsim.core.contracts import Task
from fedsim.core.method import Method, client_sgd
from fedsim.core.options import CohortOptions, TrainingOptions
from fedsim.core.simulation import Simulation
from fedsim.core.task import cross_entropy, stateless
from fedsim.core.types import Array, ClientData, HParams, Metrics, PyTree

NUM_EXAMPLES = (2, 3, 5, 9)  # smaller and larger than a batch
NUM_FEATURES, NUM_CLASSES = 3, 3
TRAINING = TrainingOptions(batch_size=4, max_num_examples=max(NUM_EXAMPLES), epochs=2)


def draw_data(rng: np.random.Generator) -> ClientData:
    """The training data of the four clients, none of them corrupted."""
    y = rng.integers(0, NUM_CLASSES, sum(NUM_EXAMPLES))
    x = rng.normal(size=(len(y), NUM_FEATURES)) + np.eye(NUM_CLASSES)[y]
    offsets = np.cumsum([0, *NUM_EXAMPLES[:-1]])
    return ClientData(
        jnp.asarray(x, jnp.float32),
        jnp.asarray(y, jnp.int32),
        jnp.asarray(offsets, jnp.int32),
        jnp.asarray(NUM_EXAMPLES, jnp.int32),
        jnp.zeros(len(NUM_EXAMPLES), bool),
    )


def make_task() -> Task:
    """Softmax regression."""

    def init(key: Array) -> PyTree:
        return {"w": 0.1 * jax.random.normal(key, (NUM_FEATURES, NUM_CLASSES)), "b": jnp.zeros(NUM_CLASSES)}

    def losses(params: PyTree, x: Array, y: Array, mask: Array) -> tuple[Array, Array]:
        logits = x @ params["w"] + params["b"][None]
        return jnp.where(mask, cross_entropy(logits, y), 0.0), jnp.where(mask, jnp.argmax(logits, axis=1) == y, False)

    def loss(params: PyTree, x: Array, y: Array, mask: Array, key: Array) -> Array:
        del key
        return jnp.sum(losses(params, x, y, mask)[0]) / jnp.maximum(jnp.sum(mask), 1)

    def metrics(params: PyTree, x: Array, y: Array, mask: Array) -> Metrics:
        loss_values, is_correct = losses(params, x, y, mask)
        return Metrics(jnp.sum(loss_values), jnp.sum(is_correct), jnp.sum(mask))

    return stateless(init, loss, metrics)


def make_simulation(**parts: Any) -> Simulation:
    """FedAvg with three of the four clients per round; `parts` replace fields of its `Method`."""

    def method(hparams: HParams, round: Array) -> Method:
        del round
        return Method(**({"aggregator": fedavg(), "client_optimizer": client_sgd(hparams)} | parts))

    return Simulation(make_task(), method, CohortOptions(size=3), TRAINING)
