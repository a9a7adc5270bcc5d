"""W1 to W3 of `benchmarks/workloads.py`, full or tiny, with a choice of layers and precision."""

import flax.linen as nn
import jax.numpy as jnp
import workloads
from synthetic import images, vectors
from workloads import Workload

import fedsim
from fedsim.core.contracts import Task
from fedsim.core.types import Array
from fedsim.models import MLP, Cifar10CNN

PRECISIONS = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
TINY = {
    "W1": lambda: Workload("W1", images(6, 20), Cifar10CNN(10), 3, 10, 0.01),
    "W2": lambda: Workload("W2", images(8, 8), Cifar10CNN(10), 4, 4, 0.01),
    "W3": lambda: Workload("W3", vectors(12, 20), MLP(10, (32,)), 6, 10, 0.1),
}


class FlaxCNN(nn.Module):
    """`fedsim.models.Cifar10CNN` with flax's layers: under `vmap` over clients, a grouped convolution."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.max_pool(nn.relu(nn.Conv(32, (3, 3), padding="VALID")(x)), (2, 2), (2, 2))
        x = nn.max_pool(nn.relu(nn.Conv(64, (3, 3), padding="VALID")(x)), (2, 2), (2, 2))
        x = nn.relu(nn.Conv(64, (3, 3), padding="VALID")(x))
        x = nn.relu(nn.Dense(64)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(x)


def load(name: str, tiny: bool) -> Workload:
    """The workload `name`, or its tiny version with a few clients and examples."""
    return TINY[name]() if tiny else workloads.load(name)


def make_task(workload: Workload, layers: str, precision: str) -> Task:
    """The workload's task.

    `layers` is "fedsim" (the form for the current backend), "patches" (the form for CPUs) or "flax" (flax's layers).
    """
    module = FlaxCNN() if layers == "flax" else workload.module
    backend = "cpu" if layers == "patches" else None
    return fedsim.classification(module, workload.dataset.train.x[0], dtype=PRECISIONS[precision], backend=backend)
