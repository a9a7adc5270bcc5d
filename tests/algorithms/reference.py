"""Clients whose order of examples does not matter, and local training on them by float64 loops."""

import jax
import jax.numpy as jnp
import numpy as np

import fedsim
from tests.conftest import Linear, build_simulation, make_dataset
from tests.core.test_client import softmax_gradient

NUM_EXAMPLES = (2, 3, 5, 8, 11)
RATE, EPOCHS, ROUNDS = 0.3, 2, 5
WHOLE, RAGGED = "whole batches", "ragged steps"  # equal and different numbers of steps


def make_clients(kind: str) -> fedsim.FederatedDataset:
    """With `RAGGED`, a client's examples are equal, so that its gradient does not depend on the batch."""
    dataset = make_dataset(NUM_EXAMPLES, num_features=4)
    if kind == RAGGED:
        first = np.repeat(dataset.train.offsets, NUM_EXAMPLES)
        for array in (dataset.train.x, dataset.train.y):
            array[:] = array[first]
    return dataset


def batch_size(kind: str) -> int:
    return max(NUM_EXAMPLES) if kind == WHOLE else 4


def simulate(dataset, kind, hparams, **options):
    """The model before the rounds, the state after them, and their records; FedAvg by default."""
    task = fedsim.classification(Linear(), dataset.train.x[0])
    defaults = {
        "cohort_size": len(NUM_EXAMPLES),
        "batch_size": batch_size(kind),
        "max_num_examples": max(NUM_EXAMPLES),
        "epochs": EPOCHS,
    }
    simulation = build_simulation(task, lambda hparams: fedsim.aggregators.fedavg(), **(defaults | options))

    def run(data):
        state = simulation.init(jax.random.key(3), data, hparams)
        return state.variables, *simulation.run_rounds(state, data, hparams, ROUNDS)

    before, state, records = jax.jit(run)(jax.tree.map(jnp.asarray, dataset.train))
    return to_vector(before.params), state, records


def to_vector(tree, batched=False) -> np.ndarray:
    """Kernel and bias as one float64 vector [d]; [N, d] if `batched`."""
    layer = tree["Dense_0"]
    kernel, bias = (np.asarray(layer[name], np.float64) for name in ("kernel", "bias"))
    return np.concatenate([kernel.reshape(*kernel.shape[: int(batched)], -1), bias], axis=-1)


class Reference:
    """Local training in NumPy."""

    def __init__(self, dataset, kind):
        cuts = np.cumsum(NUM_EXAMPLES)[:-1]
        self.x = np.split(np.asarray(dataset.train.x, np.float64), cuts)
        self.y = np.split(dataset.train.y, cuts)
        self.steps = [EPOCHS * -(-count // batch_size(kind)) for count in NUM_EXAMPLES]

    def gradient(self, i, p):
        """Gradient of client i's mean cross-entropy."""
        by_kernel, by_bias = softmax_gradient(p[:12].reshape(4, 3), p[12:], self.x[i], self.y[i])
        return np.concatenate([by_kernel.ravel(), by_bias])

    def train(self, i, start, correct=lambda gradient, p: gradient, rate=RATE, momentum=0.0, shift=0.0):
        """Client i's parameters after its steps, as in PyTorch's SGD; `shift` is added to each momentum."""
        p, velocity = start, 0.0
        for _ in range(self.steps[i]):
            velocity = momentum * velocity + correct(self.gradient(i, p), p)
            p = p - rate * (velocity + shift)
        return p


def cohort_weights(records):
    """Yields the valid clients of each round and their FedAvg weights."""
    for ids, valid in zip(np.asarray(records.client_ids), np.asarray(records.valid), strict=True):
        clients = ids[valid]
        num_examples = np.asarray(NUM_EXAMPLES)[clients]
        yield clients, num_examples / max(num_examples.sum(), 1)
