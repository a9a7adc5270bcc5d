"""W1 to W3 of `benchmarks/workloads.py`, full or tiny, with a choice of convolutions and precision."""

import jax.numpy as jnp
import workloads
from synthetic import images, vectors
from workloads import Workload

import fedsim
from fedsim.core.contracts import Task
from fedsim.core.rewriting import for_backend
from fedsim.models import MLP, Cifar10CNN

FORMS = {"products": "cpu", "convolutions": "tpu"}  # the form for which backend
PRECISIONS = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
TINY = {
    "W1": lambda: Workload("W1", images(6, 20), Cifar10CNN(10), 3, 10, 0.01),
    "W2": lambda: Workload("W2", images(8, 8), Cifar10CNN(10), 4, 4, 0.01),
    "W3": lambda: Workload("W3", vectors(12, 20), MLP(10, (32,)), 6, 10, 0.1),
}


def load(name: str, tiny: bool) -> Workload:
    """The workload `name`, or its tiny version with a few clients and examples."""
    return TINY[name]() if tiny else workloads.load(name)


def make_task(workload: Workload, layers: str, precision: str) -> Task:
    """The workload's task, with convolutions in one of `FORMS`."""
    task = fedsim.classification(workload.module, workload.dataset.train.x[0], dtype=PRECISIONS[precision])
    return for_backend(task, FORMS[layers])
