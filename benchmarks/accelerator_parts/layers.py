"""Part a: the gradient of a training step in each form of the layers, on the accelerator against the CPU.

Four clients with parameters of their own in lockstep, as in a round. The CPU computes the "cpu" form with all products
at full float32; the bound of the difference, relative to the length of a client's gradient, is 4 u sqrt(n)
(`rounding.py`). The default precision is reported beside it.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import jax
import numpy as np

import fedsim
from accelerator_parts.correctness import flat
from accelerator_parts.ledger import Result
from accelerator_parts.rounding import SAFETY, UNIT, summed_terms
from accelerator_parts.timing import gradient
from accelerator_parts.work import Work, on
from fedsim.core.types import Task, Variables
from fedsim.models import CharLSTM, Cifar10CNN, FemnistCNN

CLIENTS, EXAMPLES = 4, 16


def _work(name: str) -> Work:
    """The network called `name` on one batch from a seed."""
    rng = np.random.default_rng(0)
    size, classes, draw = {
        "Cifar10CNN": ((32, 32, 3), 10, lambda size: rng.integers(0, 256, size, np.uint8)),
        "FemnistCNN": ((28, 28, 1), 62, lambda size: rng.integers(0, 256, size, np.uint8)),
        "CharLSTM": ((80,), 80, lambda size: rng.integers(0, 80, size, np.int32)),
    }[name]
    modules = {
        "Cifar10CNN": Cifar10CNN(10),
        "FemnistCNN": FemnistCNN(62),
        "CharLSTM": CharLSTM(80, dropout_rate=0.0),
    }
    x, y = draw((EXAMPLES, *size)), rng.integers(0, classes, EXAMPLES)
    dataset = fedsim.from_arrays(x, y, np.zeros(EXAMPLES, int), x, y, num_classes=classes)
    return Work(name, dataset, modules[name], 1, EXAMPLES, 0.01)


def compare(name: str) -> list[Result]:
    """What the gradients differ by, for each form of the network's layers."""
    work = _work(name)
    cpu, accelerator = jax.devices("cpu")[0], jax.devices()[0]
    start = jax.vmap(work.task("cpu").init)(on(cpu, jax.random.split(jax.random.key(0), CLIENTS)))
    expected = _gradients(work.task("cpu"), work, start, cpu, "highest")
    bound = SAFETY * UNIT * math.sqrt(summed_terms(work))
    forms = work.forms(accelerator.platform)

    def difference(form: str, precision: str | None) -> float:
        found = _gradients(work.task(form), work, start, accelerator, precision)
        return float(np.max(np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)))

    asked = [(form, precision) for form in forms for precision in ("highest", None)]
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(asked, pool.map(lambda one: difference(*one), asked), strict=True))
    return [
        Result(
            {"network": name, "form": form, "clients": CLIENTS, "examples": EXAMPLES},
            {
                "passed": found[form, "highest"] <= bound,
                "difference": found[form, "highest"],
                "bound": bound,
                "difference_at_default_precision": found[form, None],
            },
        )
        for form in forms
    ]


def _gradients(task: Task, work: Work, start: Variables, device: jax.Device, precision: str | None) -> np.ndarray:
    """The clients' gradients [clients, P], on a device at a precision of products."""
    train = work.dataset.train
    arguments = on(device, (start.params, train.x, train.y, np.ones(EXAMPLES, bool), jax.random.key(0)))
    mapped: Callable[..., object] = jax.vmap(gradient(task), in_axes=(0, None, None, None, None))
    with jax.default_matmul_precision(precision) if precision else nullcontext():
        return flat(Variables(jax.jit(mapped)(*arguments)))
