"""The work that is measured: W1 to W5 of `benchmarks/workloads.py`, rebuilt from arrays, and the forms of their layers.

W1, W2 and W3 are made from a seed, as there; W4 and W5 come from files. `tiny` is a few clients with a few examples.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from synthetic import images, vectors

import fedsim
from accelerator_parts import arrays
from accelerator_parts.plain import PLAIN
from fedsim.core.task import AUGMENTATIONS
from fedsim.core.types import Aggregator, HParams, PyTree, Task
from fedsim.models import MLP, CharLSTM, Cifar10CNN, FemnistCNN

Rule = Callable[[HParams], Aggregator]
BACKENDS = ("cpu", "gpu", "tpu")  # that a form of the layers is for
DATA = {"W4": "femnist", "W5": "shakespeare"}  # what a work reads; the others nothing
SIZES = {  # clients, examples of each, K, B; and of the tiny work. What is read has its own clients and examples
    "W1": ((100, 500, 20, 64), (6, 20, 3, 10)),
    "W2": ((1000, 50, 50, 10), (8, 8, 4, 4)),
    "W3": ((200, 50, 20, 10), (12, 20, 6, 10)),
    "W4": ((489, 0, 32, 64), (8, 12, 3, 6)),
    "W5": ((16, 0, 16, 10), (4, 12, 2, 6)),
}


@dataclass(frozen=True, eq=False)
class Work:
    """What is trained in a round, and on what."""

    name: str
    dataset: fedsim.FederatedDataset
    module: nn.Module
    cohort_size: int
    batch_size: int
    learning_rate: float
    epochs: int = 1
    augmentation: str = "none"

    def forms(self, platform: str) -> list[str]:
        """The forms that the work's layers can take: this platform's, those for others, and flax's own layers."""
        if type(self.module) not in PLAIN:
            return ["default"]
        return [*dict.fromkeys([platform, *BACKENDS]), "plain"]

    def task(self, form: str = "default", dtype: DTypeLike = jnp.float32) -> Task:
        """The work's task with layers of a form; "default" is the form that fedsim chooses."""
        plain = form == "plain" and type(self.module) in PLAIN
        module = PLAIN[type(self.module)](self.module.num_classes) if plain else self.module
        backend = None if form in ("default", "plain") else form
        augmentation = AUGMENTATIONS[self.augmentation]
        return fedsim.classification(module, self.dataset.train.x[0], augmentation, dtype=dtype, backend=backend)

    def simulation(
        self,
        form: str = "default",
        dtype: DTypeLike = jnp.float32,
        width: int = 0,
        rule: Rule = lambda hparams: fedsim.aggregators.fedavg(),
        record_losses: bool = False,
    ) -> fedsim.Simulation:
        """The work with `width` clients in lockstep (0: the whole cohort)."""
        return fedsim.Simulation(
            task=self.task(form, dtype),
            aggregator=rule,
            cohort_size=self.cohort_size,
            batch_size=self.batch_size,
            max_count=self.dataset.max_count,
            epochs=self.epochs,
            client_width=width,
            record_losses=record_losses,
        )


def hparams(learning_rate: float) -> HParams:
    """The numbers of a run of FedAvg, as arrays."""
    return HParams(jnp.float32(learning_rate), jnp.float32(1), {})


def fewer(dataset: fedsim.FederatedDataset, num_clients: int, most: int, tests: int) -> fedsim.FederatedDataset:
    """The first clients of a data set, each with `most` of its examples at most, and `tests` of its test examples."""
    train = dataset.train
    spans = list(zip(train.offsets[:num_clients], np.minimum(train.counts[:num_clients], most), strict=True))
    index = np.concatenate([np.arange(offset, offset + count) for offset, count in spans])
    counts = np.asarray([count for _, count in spans], np.int32)
    offsets = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int32)
    train = train._replace(
        x=train.x[index], y=train.y[index], offsets=offsets, counts=counts, corrupted=np.zeros(len(counts), bool)
    )
    return replace(dataset, train=train, x_test=dataset.x_test[:tests], y_test=dataset.y_test[:tests])


def load(name: str, folders: Sequence[Path], tiny: bool = False) -> Work:
    """The work called `name`. Raises `MissingData` where its data are not in `folders`."""
    num_clients, examples, cohort_size, batch_size = SIZES[name][tiny]
    if name in DATA:
        dataset = arrays.load(DATA[name], folders)
        dataset = fewer(dataset, num_clients, examples, tests=10) if tiny else dataset
    else:
        dataset = (vectors if name == "W3" else images)(num_clients, examples)
    lstm = CharLSTM(80, hidden_size=16 if tiny else 256, dropout_rate=0.0)
    modules = {"W1": Cifar10CNN(10), "W2": Cifar10CNN(10), "W3": MLP(10, (32,)), "W4": FemnistCNN(62), "W5": lstm}
    return Work(name, dataset, modules[name], cohort_size, batch_size, 0.1 if name in ("W3", "W5") else 0.01)


def quickstart(folders: Sequence[Path], tiny: bool = False) -> Work:
    """The quickstart's runs: `configs/quickstart.toml`."""
    dataset = arrays.load("digits", folders)
    return Work("quickstart", dataset, MLP(10, (64,)), 10, 10, 0.1, epochs=1 if tiny else 5)


def on(device: jax.Device, tree: PyTree) -> PyTree:
    """`tree` on a device."""
    return jax.tree.map(lambda leaf: jax.device_put(leaf, device), tree)
