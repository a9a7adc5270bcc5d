"""A federation of four clients and softmax regression on it: what a whole round is tried with."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.aggregators import fedavg
from fedsim.core.simulation import Simulation
from fedsim.core.task import cross_entropy, stateless
from fedsim.core.types import Array, ClientData, Metrics, PyTree, Task

COUNTS = (2, 3, 5, 9)  # smaller and larger than a batch
BATCH_SIZE, NUM_FEATURES, NUM_CLASSES = 4, 3, 3


def federation(rng: np.random.Generator) -> ClientData:
    """Nobody is corrupted."""
    y = rng.integers(0, NUM_CLASSES, sum(COUNTS))
    x = rng.normal(size=(len(y), NUM_FEATURES)) + np.eye(NUM_CLASSES)[y]
    offsets = np.cumsum([0, *COUNTS[:-1]])
    return ClientData(
        jnp.asarray(x, jnp.float32),
        jnp.asarray(y, jnp.int32),
        jnp.asarray(offsets, jnp.int32),
        jnp.asarray(COUNTS, jnp.int32),
        jnp.zeros(len(COUNTS), bool),
    )


def task() -> Task:
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
        each, correct = losses(params, x, y, mask)
        return Metrics(jnp.sum(each), jnp.sum(correct), jnp.sum(mask))

    return stateless(init, loss, metrics)


def simulation(**options: Any) -> Simulation:
    """FedAvg with three of the four clients a round."""
    defaults: dict[str, Any] = {"cohort_size": 3, "batch_size": BATCH_SIZE, "max_count": max(COUNTS), "epochs": 2}
    return Simulation(task(), lambda hparams: fedavg(), **(defaults | options))
