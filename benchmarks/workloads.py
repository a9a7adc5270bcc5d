"""The workloads that the benchmarks share: float32, plain SGD, one epoch, FedAvg, nothing recorded, no evaluation.

- W1: 100 clients x 500 images of 32 x 32 x 3, K 20, B 64, the CIFAR-10 CNN.
- W2: 1,000 clients x 50 such images, K 50, B 10, the same CNN.
- W3: 200 clients x 50 vectors of 64, K 20, B 10, an MLP 64-32-10.
- W4: the FEMNIST CNN on the writers of the prepared FEMNIST, K 32, B 64.
- W5: the Shakespeare LSTM (dropout 0) on 16 roles drawn at random, every 40th window of each, K 16, B 10.
- cifar10, femnist, shakespeare: the paper's Table 1 in one round each: K, E, B and models as in configs/paper, on W1's,
  W4's and W5's data.

W1 to W3 are made from a seed; W4 and W5 need the prepared data sets (`fedsim data prepare`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from synthetic import images, vectors

import fedsim
from fedsim.config.schema import ClientConfig, Config, DataConfig, ServerConfig
from fedsim.core.settings import Scalar
from fedsim.core.types import Aggregator, Array, HParams, PyTree
from fedsim.engine import build, memory
from fedsim.engine.inputs import RunInputs, Shared
from fedsim.engine.layout import Layout, Machine, choose_layout
from fedsim.engine.programs import Programs, make_mesh
from fedsim.models import MLP, CharLSTM, Cifar10CNN, FemnistCNN

Placement = Callable[[PyTree, P], PyTree]  # a tree of arrays with a leading axis as the spec says, on the devices
NUM_ROLES, EVERY = 16, 40
RULES: dict[str, Callable[[HParams], Aggregator]] = {
    "fedavg": lambda hparams: fedsim.aggregators.fedavg(),
    "arfl": lambda hparams: fedsim.aggregators.arfl(lam=hparams.settings["arfl.lam"]),
}


@dataclass(frozen=True, eq=False)
class Workload:
    """What is trained in a round, and on what."""

    name: str
    dataset: fedsim.FederatedDataset
    module: nn.Module
    cohort_size: int
    batch_size: int
    learning_rate: float
    epochs: int = 1

    def layout(self, num_runs: int = 1) -> Layout:
        """What fedsim chooses by itself for `num_runs` runs of the workload on the devices at hand."""
        task = self.simulation().task
        variables = jax.eval_shape(task.init, jax.random.key(0))
        return choose_layout(
            Config(server=ServerConfig(cohort_size=self.cohort_size), client=ClientConfig(batch_size=self.batch_size)),
            num_runs,
            sum(leaf.size for leaf in jax.tree.leaves(variables.params)),
            np.asarray(self.dataset.train.counts),
            partial(memory.step_bytes, task, self.dataset),
            Machine(jax.default_backend(), jax.device_count(), memory.available()),
        )

    def programs(self, layout: Layout, max_rounds: int) -> tuple[Programs, Placement]:
        """The workload's runs as `fedsim run` compiles them, and what puts arrays on the layout's devices."""
        mesh = make_mesh(layout)
        simulation = replace(self.simulation(layout.client_width, layout.micro_batch), client_axis=layout.client_axis)
        place = lambda tree, spec: jax.device_put(tree, None if mesh is None else NamedSharding(mesh, spec))
        return Programs(simulation, layout.run_width, max_rounds, mesh=mesh), place

    def shared(self) -> Shared:
        """What all runs read."""
        return Shared(self.dataset.train, self.simulation().task.frozen)

    def simulation(
        self, width: int = 0, micro_batch: int = 0, rule: str = "fedavg", record_losses: bool = False
    ) -> fedsim.Simulation:
        """The workload with `width` clients in lockstep (0: the whole cohort), `micro_batch` examples at a time."""
        return fedsim.Simulation(
            task=fedsim.classification(self.module, self.dataset.train.x[0]),
            aggregator=RULES[rule],
            cohort_size=self.cohort_size,
            batch_size=self.batch_size,
            max_count=self.dataset.max_count,
            epochs=self.epochs,
            client_width=width,
            micro_batch=micro_batch,
            record_losses=record_losses,
        )


def hparams(learning_rate: Scalar) -> HParams:
    """What any of the rules reads, [] or [S] as the learning rate; ARFL's lambda is M."""
    learning_rate = jnp.asarray(learning_rate, jnp.float32)
    one = jnp.ones_like(learning_rate)
    return HParams(learning_rate, one, {"arfl.lam": one})


def run_inputs(keys: Array, learning_rates: Array) -> RunInputs:
    """Runs [S] that differ in key and learning rate, all on clean data."""
    return RunInputs(keys, hparams(learning_rates), {})


def load(name: str) -> Workload:
    """The workload called `name`."""
    return WORKLOADS[name]()


def roles() -> fedsim.FederatedDataset:
    """16 roles of the prepared Shakespeare with the sizes' real ratios: every 40th training window of each."""
    config = DataConfig(name="shakespeare", partition="natural", sample_clients=NUM_ROLES, test_fraction=0.2)
    dataset = build.dataset(Config(data=config))
    train = dataset.train
    kept = [np.arange(o, o + c, EVERY) for o, c in zip(train.offsets, train.counts, strict=True)]
    owners = np.repeat(np.arange(len(kept)), [len(k) for k in kept])
    index = np.concatenate(kept)
    return fedsim.from_arrays(train.x[index], train.y[index], owners, dataset.x_test[:100], dataset.y_test[:100])


def writers() -> fedsim.FederatedDataset:
    """All writers of the prepared FEMNIST."""
    return build.dataset(Config(data=DataConfig(name="femnist", partition="natural")))


def _w1() -> Workload:
    return Workload("W1", images(100, 500), Cifar10CNN(10), 20, 64, 0.01)


def _w2() -> Workload:
    return Workload("W2", images(1000, 50), Cifar10CNN(10), 50, 10, 0.01)


def _w3() -> Workload:
    return Workload("W3", vectors(200, 50), MLP(10, (32,)), 20, 10, 0.1)


def _w4() -> Workload:
    return Workload("W4", writers(), FemnistCNN(62), 32, 64, 0.01)


def _w5() -> Workload:
    return Workload("W5", roles(), CharLSTM(80, dropout_rate=0.0), NUM_ROLES, 10, 0.1)


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "W1": _w1,
    "W2": _w2,
    "W3": _w3,
    "W4": _w4,
    "W5": _w5,
    "cifar10": lambda: replace(_w1(), name="cifar10", epochs=5),
    "femnist": lambda: replace(_w4(), name="femnist", epochs=20),
    "shakespeare": lambda: replace(_w5(), name="shakespeare", module=CharLSTM(80)),
}
