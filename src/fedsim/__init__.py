"""fedsim: federated learning under corrupted clients, vectorised in JAX.

Two lines run an experiment: `experiment = fedsim.load("quickstart.toml")`, `result = fedsim.run(experiment)`.

Below that, a `Simulation` is built from a `Task` (a flax module by `classification`), an aggregator and a few numbers;
its methods are pure functions of a key, `ClientData` and `HParams`. The command line is `fedsim.cli`.
"""

from fedsim import start  # noqa: F401  # isort: skip  # first, for Ctrl-C while the others are imported
from fedsim import aggregators, algorithms, attacks, corruption
from fedsim.api import Result, load, run
from fedsim.core.corrupt import corrupt
from fedsim.core.evaluate import evaluate
from fedsim.core.settings import Bounds, Limit, Scalar, Traced
from fedsim.core.simulation import Simulation
from fedsim.core.task import classification, regression, stateless, with_frozen
from fedsim.core.types import (
    Aggregate,
    Aggregator,
    Algorithm,
    Attack,
    ClientData,
    CohortReport,
    Corruption,
    DataSpec,
    FederatedDataset,
    HParams,
    LocalTraining,
    Metrics,
    Round,
    RoundRecord,
    ServerState,
    Task,
    Trained,
    Variables,
)
from fedsim.datasets import Divided, RawDataset, from_arrays

__version__ = "0.2.0"

__all__ = [
    "Aggregate",
    "Aggregator",
    "Algorithm",
    "Attack",
    "Bounds",
    "ClientData",
    "CohortReport",
    "Corruption",
    "DataSpec",
    "Divided",
    "FederatedDataset",
    "HParams",
    "Limit",
    "LocalTraining",
    "Metrics",
    "RawDataset",
    "Result",
    "Round",
    "RoundRecord",
    "Scalar",
    "ServerState",
    "Simulation",
    "Task",
    "Traced",
    "Trained",
    "Variables",
    "aggregators",
    "algorithms",
    "attacks",
    "classification",
    "corrupt",
    "corruption",
    "evaluate",
    "from_arrays",
    "load",
    "regression",
    "run",
    "stateless",
    "with_frozen",
]
