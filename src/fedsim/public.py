"""The names that `fedsim` offers, imported when one of them is first used (see `fedsim.__getattr__`)."""

from typing import TYPE_CHECKING, Any

from fedsim.api import Result, load, run
from fedsim.config.values import sweep
from fedsim.core.chain import chain
from fedsim.core.contracts import (
    Aggregator,
    Algorithm,
    Attack,
    AttackContext,
    ClientOptimizer,
    LocalResult,
    LocalTraining,
    PreAggregator,
    RootEvaluator,
    Schedule,
    Task,
)
from fedsim.core.corrupt import Corruption, corrupt
from fedsim.core.evaluate import evaluate
from fedsim.core.layerwise import layerwise
from fedsim.core.method import Method, client_sgd, plain_sgd
from fedsim.core.module import from_functions
from fedsim.core.options import CohortOptions, LossOptions, TrainingOptions
from fedsim.core.settings import Bounds, Limit, OnlyIf, Traced
from fedsim.core.simulation import Simulation
from fedsim.core.task import classification, regression, stateless, with_frozen
from fedsim.core.types import (
    Aggregate,
    ClientData,
    CohortReport,
    DataSpec,
    Examples,
    FederatedDataset,
    HParams,
    Metrics,
    RoundRecord,
    Scalar,
    SimulationState,
    Variables,
)
from fedsim.datasets import Partition, RawDataset, from_arrays, from_dataset, from_pandas
from fedsim.runs.callbacks import Callback

if TYPE_CHECKING:
    from fedsim.report.claims import Claim

__all__ = [
    "Aggregate",
    "Aggregator",
    "Algorithm",
    "Attack",
    "AttackContext",
    "Bounds",
    "Callback",
    "Claim",
    "ClientData",
    "ClientOptimizer",
    "CohortOptions",
    "CohortReport",
    "Corruption",
    "DataSpec",
    "Examples",
    "FederatedDataset",
    "HParams",
    "Limit",
    "LocalResult",
    "LocalTraining",
    "LossOptions",
    "Method",
    "Metrics",
    "OnlyIf",
    "Partition",
    "PreAggregator",
    "RawDataset",
    "Result",
    "RootEvaluator",
    "RoundRecord",
    "Scalar",
    "Schedule",
    "Simulation",
    "SimulationState",
    "Task",
    "Traced",
    "TrainingOptions",
    "Variables",
    "chain",
    "classification",
    "client_sgd",
    "corrupt",
    "evaluate",
    "from_arrays",
    "from_dataset",
    "from_functions",
    "from_pandas",
    "layerwise",
    "load",
    "plain_sgd",
    "regression",
    "run",
    "stateless",
    "sweep",
    "with_frozen",
]


def __getattr__(name: str) -> Any:
    """Imports what reads tables when it is first used."""
    if name != "Claim":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fedsim.report.claims import Claim

    return Claim
