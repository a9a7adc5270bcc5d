"""fedsim: federated learning under corrupted clients, vectorised in JAX.

The library face: a `Simulation` is built from a `Task` (a flax module by `classification`), an aggregator and a few
numbers; its methods are pure functions of a key, `ClientData` and `HParams`. The command line is `fedsim.cli`.
"""

from fedsim import aggregators, attacks, corruption
from fedsim.corruption import corrupt
from fedsim.datasets import from_arrays
from fedsim.evaluate import evaluate
from fedsim.simulate import Simulation
from fedsim.task import classification
from fedsim.types import (
    Aggregate,
    Aggregator,
    ClientData,
    CohortReport,
    FederatedDataset,
    HParams,
    Metrics,
    RoundRecord,
    ServerState,
    Task,
)

__version__ = "0.1.0"

__all__ = [
    "Aggregate",
    "Aggregator",
    "ClientData",
    "CohortReport",
    "FederatedDataset",
    "HParams",
    "Metrics",
    "RoundRecord",
    "ServerState",
    "Simulation",
    "Task",
    "aggregators",
    "attacks",
    "classification",
    "corrupt",
    "corruption",
    "evaluate",
    "from_arrays",
]
