"""fedsim: federated learning under corrupted clients, vectorized in JAX.

Two lines run an experiment: `experiment = fedsim.load("quickstart.toml")`, `result = fedsim.run(experiment)`.

Below that, a `Simulation` is built from a `Task` (`classification` makes one of a flax module), a function that returns
a `Method` (aggregator, optimizers, attack), and a few numbers. Its methods are pure functions of a key, `ClientData`
and `HParams`. The command line is `fedsim.cli`.
"""

from fedsim import interrupts  # noqa: F401  # isort: skip  # first, to handle Ctrl-C during the other imports
from fedsim import aggregators, algorithms, attacks, corruption
from fedsim.api import Result, load, run
from fedsim.config.values import sweep
from fedsim.core.contracts import (
    Aggregator,
    Algorithm,
    Attack,
    AttackContext,
    ClientOptimizer,
    Corruption,
    LocalResult,
    LocalTraining,
    Task,
)
from fedsim.core.corrupt import corrupt
from fedsim.core.evaluate import evaluate
from fedsim.core.method import Method, client_sgd, plain_sgd
from fedsim.core.options import CohortOptions, LossOptions, TrainingOptions
from fedsim.core.settings import Bounds, Limit, Scalar, Traced
from fedsim.core.simulation import Simulation
from fedsim.core.task import classification, regression, stateless, with_frozen
from fedsim.core.types import (
    Aggregate,
    ClientData,
    CohortReport,
    DataSpec,
    FederatedDataset,
    HParams,
    Metrics,
    RoundRecord,
    SimulationState,
    Variables,
)
from fedsim.datasets import Partition, RawDataset, from_arrays, from_pandas
from fedsim.version import __version__ as __version__

__all__ = [
    "Aggregate",
    "Aggregator",
    "Algorithm",
    "Attack",
    "AttackContext",
    "Bounds",
    "ClientData",
    "ClientOptimizer",
    "CohortOptions",
    "CohortReport",
    "Corruption",
    "DataSpec",
    "FederatedDataset",
    "HParams",
    "Limit",
    "LocalResult",
    "LocalTraining",
    "LossOptions",
    "Method",
    "Metrics",
    "Partition",
    "RawDataset",
    "Result",
    "RoundRecord",
    "Scalar",
    "Simulation",
    "SimulationState",
    "Task",
    "Traced",
    "TrainingOptions",
    "Variables",
    "aggregators",
    "algorithms",
    "attacks",
    "classification",
    "client_sgd",
    "corrupt",
    "corruption",
    "evaluate",
    "from_arrays",
    "from_pandas",
    "load",
    "plain_sgd",
    "regression",
    "run",
    "stateless",
    "sweep",
    "with_frozen",
]
