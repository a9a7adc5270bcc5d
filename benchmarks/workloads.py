"""The workloads that the benchmarks share: float32, plain SGD, one epoch, FedAvg, nothing recorded, no evaluation.

- W1: 100 clients x 500 images of 32 x 32 x 3, K 20, B 64, the CIFAR-10 CNN.
- W2: 1,000 clients x 50 such images, K 50, B 10, the same CNN.
- W3: 200 clients x 50 vectors of 64, K 20, B 10, an MLP 64-32-10.
- W4: the FEMNIST CNN on the writers of the prepared FEMNIST, K 32, B 64.
- W5: the Shakespeare LSTM (dropout 0) on 16 roles drawn at random, every 40th window of each, K 16, B 10.
- cifar10, femnist, shakespeare: one round of the paper's Table 1 each: K, E, B and models as in configs/paper, on the
  data of W1, W4 and W5.

W1 to W3 are generated from a seed; W4 and W5 need the prepared data sets (`fedsim data prepare`).
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import fedsim
from fedsim.config.schema import Config
from fedsim.config.sections import ClientConfig, DataConfig, ServerConfig
from fedsim.core.contracts import Aggregator, Attack, Task
from fedsim.core.types import Array, HParams, PyTree, Scalar
from fedsim.engine import memory
from fedsim.engine.data import load_dataset
from fedsim.engine.inputs import RunInputs, SharedInputs
from fedsim.engine.layout import Layout, Machine, choose_layout, make_mesh
from fedsim.engine.programs import RunFunctions
from fedsim.errors import FedsimError
from fedsim.models import MLP, CharLSTM, Cifar10CNN, FemnistCNN

Placement = Callable[[PyTree, P], PyTree]  # puts a tree of arrays on the devices, sharded as the spec says
NUM_ROLES, EVERY = 16, 40
Rule = Callable[[HParams], Aggregator]
RULES: dict[str, Rule] = {
    "fedavg": lambda hparams: fedsim.aggregators.fedavg(),
    "arfl": lambda hparams: fedsim.aggregators.arfl(lam=hparams.settings["arfl.lam"]),
}


@dataclass(frozen=True, eq=False)
class Workload:
    """A model, its data, and the settings of a round."""

    name: str
    dataset: fedsim.FederatedDataset
    module: nn.Module
    cohort_size: int
    batch_size: int
    learning_rate: float
    epochs: int = 1

    def layout(self, num_runs: int = 1) -> Layout:
        """The layout that fedsim chooses for `num_runs` runs of the workload on the current devices."""
        task = self.simulation().task
        variables = jax.eval_shape(task.init, jax.random.key(0))
        return choose_layout(
            Config(server=ServerConfig(cohort_size=self.cohort_size), client=ClientConfig(batch_size=self.batch_size)),
            num_runs,
            sum(leaf.size for leaf in jax.tree.leaves(variables.params)),
            np.asarray(self.dataset.train.num_examples),
            partial(memory.step_bytes, task, self.dataset),
            Machine.current(),
        )

    def programs(self, layout: Layout, max_rounds: int) -> tuple[RunFunctions, Placement]:
        """The functions that `fedsim run` compiles, and a function that puts arrays on the layout's devices."""
        mesh = make_mesh(layout)
        simulation = self.simulation(layout.client_width, layout.micro_batch, axis=layout.client_axis)
        place = lambda tree, spec: jax.device_put(tree, None if mesh is None else NamedSharding(mesh, spec))
        return RunFunctions(simulation, max_rounds, mesh=mesh), place

    def shared(self) -> SharedInputs:
        """The data that all runs share."""
        return SharedInputs(self.dataset.train, self.simulation().task.frozen)

    def simulation(
        self,
        width: int = 0,
        micro_batch: int = 0,
        rule: Rule = RULES["fedavg"],
        record_losses: bool = False,
        axis: str | None = None,
        task: Task | None = None,
        attack: Attack = fedsim.Attack(),  # noqa: B008
    ) -> fedsim.Simulation:
        """The workload with `width` clients in lockstep (0: the whole cohort), `micro_batch` examples at a time.

        With an `axis` of a mesh its devices share the cohort. `task` defaults to the module in float32.
        """
        return fedsim.Simulation(
            task=task or fedsim.classification(self.module, self.dataset.train.x[0]),
            method=lambda hparams, round: fedsim.Method(rule(hparams), fedsim.client_sgd(hparams), attack=attack),
            cohort=fedsim.CohortOptions(self.cohort_size, width=width, axis=axis),
            training=fedsim.TrainingOptions(
                self.batch_size, self.dataset.max_num_examples, self.epochs, micro_batch=micro_batch
            ),
            losses=fedsim.LossOptions(recorded=record_losses),
        )


def hparams(learning_rate: Scalar) -> HParams:
    """The numbers that `RULES` read, shaped like the learning rate, [] or [S]; ARFL's lambda is M."""
    learning_rate = jnp.asarray(learning_rate, jnp.float32)
    one = jnp.ones_like(learning_rate)
    return HParams(learning_rate, one, {"arfl.lam": one})


def run_inputs(keys: Array, learning_rates: Array) -> RunInputs:
    """Runs [S] that differ in key and learning rate, on clean data."""
    return RunInputs(keys, hparams(learning_rates), {})


def load(name: str, tiny: bool = False) -> Workload:
    """The workload `name`; of W1 to W3 also a tiny version, with a few clients and examples."""
    return (TINY if tiny else WORKLOADS)[name]()


def load_all(names: Sequence[str]) -> dict[str, Workload]:
    """The workloads `names`; ends the command with one line if a data set is not prepared."""
    result = {}
    for name in names:
        try:
            result[name] = load(name)
        except FedsimError as error:
            print(f"{name}: {error}", file=sys.stderr)
            sys.exit(2)
    return result


def vectors(num_clients: int, examples: int) -> fedsim.FederatedDataset:
    """`num_clients` x `examples` vectors of 64 floats around the corner of one of ten classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=num_clients * examples)
    x = rng.normal(size=(len(y), 64)).astype(np.float32)
    x += np.eye(10, 64, dtype=np.float32)[y]
    return fedsim.from_arrays(x, y, np.arange(len(y)) // examples, x[:100], y[:100])


def images(num_clients: int, examples: int) -> fedsim.FederatedDataset:
    """`num_clients` x `examples` uint8 noise images of 32 x 32 x 3, brighter by class."""
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=num_clients * examples)
    x = rng.integers(0, 156, size=(len(y), 32, 32, 3), dtype=np.uint8) + (10 * y[:, None, None, None]).astype(np.uint8)
    return fedsim.from_arrays(x, y, np.arange(len(y)) // examples, x[:100], y[:100])


def roles() -> fedsim.FederatedDataset:
    """16 roles of the prepared Shakespeare with realistic ratios of sizes: every 40th training window of each."""
    config = DataConfig(name="shakespeare", partition="natural", sample_clients=NUM_ROLES, test_fraction=0.2)
    dataset = load_dataset(Config(data=config))
    train = dataset.train
    kept = [np.arange(o, o + c, EVERY) for o, c in zip(train.offsets, train.num_examples, strict=True)]
    owners = np.repeat(np.arange(len(kept)), [len(k) for k in kept])
    index = np.concatenate(kept)
    return fedsim.from_arrays(train.x[index], train.y[index], owners, dataset.x_test[:100], dataset.y_test[:100])


def writers() -> fedsim.FederatedDataset:
    """All writers of the prepared FEMNIST."""
    return load_dataset(Config(data=DataConfig(name="femnist", partition="natural")))


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "W1": lambda: Workload("W1", images(100, 500), Cifar10CNN(10), 20, 64, 0.01),
    "W2": lambda: Workload("W2", images(1000, 50), Cifar10CNN(10), 50, 10, 0.01),
    "W3": lambda: Workload("W3", vectors(200, 50), MLP(10, (32,)), 20, 10, 0.1),
    "W4": lambda: Workload("W4", writers(), FemnistCNN(62), 32, 64, 0.01),
    "W5": lambda: Workload("W5", roles(), CharLSTM(80, dropout_rate=0.0), NUM_ROLES, 10, 0.1),
    "cifar10": lambda: replace(load("W1"), name="cifar10", epochs=5),
    "femnist": lambda: replace(load("W4"), name="femnist", epochs=20),
    "shakespeare": lambda: replace(load("W5"), name="shakespeare", module=CharLSTM(80)),
}
TINY: dict[str, Callable[[], Workload]] = {
    "W1": lambda: Workload("W1", images(6, 20), Cifar10CNN(10), 3, 10, 0.01),
    "W2": lambda: Workload("W2", images(8, 8), Cifar10CNN(10), 4, 4, 0.01),
    "W3": lambda: Workload("W3", vectors(12, 20), MLP(10, (32,)), 6, 10, 0.1),
}
