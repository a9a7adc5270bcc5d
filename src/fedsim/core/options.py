"""The static options of a `Simulation`: local training, cohort, losses; and whether they fit the data."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.core.contracts import Task
from fedsim.core.types import Array, ClientData


@dataclass(frozen=True)
class TrainingOptions:
    """Local training of a client in a round; static. Raises `ValueError` if a number is out of range."""

    batch_size: int
    """B, examples of a step."""
    max_num_examples: int
    """Examples of the largest client."""
    epochs: int = 1
    """E, passes over the client's examples."""
    steps: int | None = None
    """Steps in a round, instead of `epochs`."""
    micro_batch: int = 0
    """Examples whose gradient is computed at a time; 0 means the whole batch."""

    def __post_init__(self) -> None:
        minimums = {"batch_size": 1, "max_num_examples": 1, "epochs": 1, "micro_batch": 0}
        minimums |= {} if self.steps is None else {"steps": 1}
        _check_integers(self, minimums, "training")


@dataclass(frozen=True)
class CohortOptions:
    """The clients of a round; static. Raises `ValueError` if a number is out of range."""

    size: int
    """K, clients sampled in each round."""
    dropout_rate: float = 0.0
    """Probability that a sampled client does not answer."""
    width: int = 0
    """Clients that train in lockstep; 0 means the whole cohort."""
    axis: str | None = None
    """Axis of a mesh whose devices share the cohort; only inside `shard_map`."""
    num_states: int = 0
    """U, clients whose states are held at a time (`Simulation.state_rows`); 0 means all."""

    def __post_init__(self) -> None:
        _check_integers(self, {"size": 1, "width": 0, "num_states": 0}, "cohort")
        if not 0 <= self.dropout_rate < 1:
            raise ValueError(f"cohort.dropout_rate: must be at least 0 and less than 1, got {self.dropout_rate}")


@dataclass(frozen=True)
class LossOptions:
    """The losses that clients report; static. Raises `ValueError` for another model."""

    model: Literal["broadcast", "aggregated"] = "broadcast"
    """Whether clients measure at the model that they receive (Algorithm 1), or at the server's next one."""
    recorded: bool = True
    """Whether losses are recorded and a non-finite loss makes a client invalid; if not, and if the rule does not use
    them either, they are never computed."""

    def __post_init__(self) -> None:
        if self.model not in ("broadcast", "aggregated"):
            raise ValueError(f'losses.model: must be "broadcast" or "aggregated", got {self.model!r}')


def check_data(data: ClientData, task: Task, cohort: CohortOptions, training: TrainingOptions) -> None:
    """Raises `ValueError` if options or task do not fit the data, as far as the data are not traced."""
    if cohort.size > (num_clients := data.num_examples.shape[0]):
        raise ValueError(f"cohort.size: must be at most {num_clients}, the number of clients, got {cohort.size}")
    if not isinstance(data.num_examples, jax.core.Tracer):
        largest, limit = np.max(np.asarray(data.num_examples)), training.max_num_examples
        if largest > limit:
            raise ValueError(
                f"training.max_num_examples: must be at least {largest}, the largest client's, got {limit}"
            )
    check_labels(data.y, task)


def check_labels(labels: Array | np.ndarray, task: Task) -> None:
    """Raises `ValueError` if the model has no output for one of the `labels`, as far as they are not traced."""
    is_traced = isinstance(labels, jax.core.Tracer)
    if task.num_classes is None or is_traced or not jnp.issubdtype(labels.dtype, jnp.integer):
        return
    labels, num_classes = np.asarray(labels), task.num_classes()
    if labels.min(initial=0) < 0 or labels.max(initial=0) >= num_classes:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise ValueError(
            f"task: the model has {num_classes} outputs, so labels must be 0 to {num_classes - 1}, got {wrong}"
        )


def _check_integers(options: object, minimums: dict[str, int], owner: str) -> None:
    """Raises `ValueError` if a field of `options` is no integer of at least its minimum."""
    for name, minimum in minimums.items():
        value = getattr(options, name)
        if not isinstance(value, int | np.integer) or value < minimum:
            raise ValueError(f"{owner}.{name}: must be an integer >= {minimum}, got {value!r}")
