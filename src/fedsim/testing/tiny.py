"""Softmax regression on four clients: a small federation for checks that run whole rounds."""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from fedsim.aggregators import fedavg
from fedsim.core.contracts import Task
from fedsim.core.method import Method, client_sgd
from fedsim.core.options import CohortOptions, TrainingOptions
from fedsim.core.simulation import Simulation
from fedsim.core.task import classification
from fedsim.core.types import Array, ClientData, HParams

NUM_EXAMPLES = (2, 3, 5, 9)  # smaller and larger than a batch
NUM_FEATURES, NUM_CLASSES = 3, 3
TRAINING = TrainingOptions(batch_size=4, max_num_examples=max(NUM_EXAMPLES), epochs=2)


def draw_data(rng: np.random.Generator) -> ClientData:
    """The training data of the four clients, none of them corrupted."""
    y = rng.integers(0, NUM_CLASSES, sum(NUM_EXAMPLES))
    x = rng.normal(size=(len(y), NUM_FEATURES)) + np.eye(NUM_CLASSES)[y]
    return join_clients(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32), NUM_EXAMPLES)


def join_clients(x: Array, y: Array, sizes: Sequence[int]) -> ClientData:
    """The examples as those of clients with these numbers of examples, none of them corrupted."""
    offsets, num_examples = (jnp.asarray(a, jnp.int32) for a in (np.cumsum([0, *sizes[:-1]]), sizes))
    return ClientData(x, y, offsets, num_examples, jnp.zeros(len(sizes), bool))


def make_task() -> Task:
    """Softmax regression."""
    return classification(nn.Dense(NUM_CLASSES), np.zeros(NUM_FEATURES, np.float32))


def make_simulation(**parts: Any) -> Simulation:
    """FedAvg with three of the four clients per round; `parts` replace fields of its `Method`."""

    def method(hparams: HParams, round: Array) -> Method:
        return Method(**({"aggregator": fedavg(), "client_optimizer": client_sgd(hparams)} | parts))

    return Simulation(make_task(), method, CohortOptions(size=3), TRAINING)
