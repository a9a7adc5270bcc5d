"""The pytrees that travel through a simulation, each field with its shape.

Axes: `N` clients, `M` training examples of all clients, `K` clients of one round (the cohort), `B` batch.
NamedTuples are pytrees of (possibly traced) arrays; frozen dataclasses are static. `Task` and `Aggregator` are
tuples of pure functions: build them inside a trace or close over them, never pass them to a jitted function.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

Array: TypeAlias = jax.Array
PyTree: TypeAlias = Any


class ClientData(NamedTuple):
    """The training data of all clients, concatenated client by client; no padding is stored."""

    x: Array  # [M, *feature] uint8 pixels, integer characters or float32 features
    y: Array  # [M] int32
    offsets: Array  # [N] int32, the first example of each client
    counts: Array  # [N] int32, m_i; 0: the client is out of the game
    corrupted: Array  # [N] bool, who is corrupted: for attacks and records, never shown to an aggregator


class Client(NamedTuple):
    """One client's slice of `ClientData`."""

    client_id: Array  # [] int32
    offset: Array  # [] int32
    num_examples: Array  # [] int32, m_i; 0: padding, or out of the game


class Metrics(NamedTuple):
    """Sums over examples, so that parts merge by addition."""

    loss_sum: Array  # []
    num_correct: Array  # []
    num_examples: Array  # []


class Task(NamedTuple):
    """What is learnt: a model with its loss, as pure functions."""

    init: Callable[[Array], PyTree]  # key -> params
    loss: Callable[..., Array]  # params, x[B, ...], y[B], mask[B], key -> []; training mode (dropout, augmentation)
    metrics: Callable[..., Metrics]  # params, x[B, ...], y[B], mask[B] -> Metrics; deterministic


class HParams(NamedTuple):
    """What may differ between the runs of one compiled program: data, not shape."""

    learning_rate: Array | float = 0.1  # [] of the clients' SGD
    lam: Array | float = 1.0  # [] lambda in units of M: the paper's lambda = c * M is lam = c


class CohortReport(NamedTuple):
    """All that the server can see of a round."""

    client_ids: Array  # [K] int32, all different
    counts: Array  # [K] int32
    losses: Array  # [K] mean training loss at the broadcast parameters; inf: not finite; NaN: did not answer
    updates: PyTree  # [K, ...] local minus broadcast parameters
    valid: Array  # [K] bool: has examples, did answer, update (and loss, if recorded) are finite


class Aggregate(NamedTuple):
    """What an aggregator makes of a report."""

    update: PyTree  # what the server adds to its parameters (through its optimiser)
    weights: Array  # [K] each client's share, summing to 1; all zero: the round is void and the model stays


class Aggregator(NamedTuple):
    """A server's rule as pure functions; `fedsim.aggregators` documents the contract."""

    init: Callable[..., PyTree]  # params, counts[N], losses[N] -> state
    aggregate: Callable[..., tuple[Aggregate, PyTree]]  # state, CohortReport, key -> (Aggregate, state)
    client_weights: Callable[[PyTree], Array | None]  # state -> alpha[N]; None: keeps no weights of all clients


class ServerState(NamedTuple):
    """Everything that a run carries from round to round."""

    params: PyTree
    optimizer: PyTree  # state of the server's optimiser
    aggregator: PyTree  # state of the rule
    key: Array  # [] the run's key for its rounds; round t uses fold_in(key, t)
    round: Array  # [] int32, rounds done


class RoundRecord(NamedTuple):
    """What is kept of a round (stacked over rounds by the engine)."""

    client_ids: Array  # [K]
    losses: Array  # [K] as reported; NaN where not recorded or not answered
    weights: Array  # [K]
    valid: Array  # [K]


@dataclass(frozen=True, eq=False)
class FederatedDataset:
    """A data set divided among clients: NumPy on the host, clean."""

    name: str
    train: ClientData  # of NumPy arrays
    x_test: np.ndarray  # [T, *feature]
    y_test: np.ndarray  # [T] int32
    num_classes: int
    test_clients: np.ndarray | None = None  # [T] int32, where they belong to clients; >= N: not in training

    @property
    def num_clients(self) -> int:
        """N."""
        return len(self.train.counts)

    @property
    def num_test_clients(self) -> int:
        """Clients that test examples belong to, all N included; 0 where they belong to nobody."""
        return 0 if self.test_clients is None else max(self.num_clients, 1 + int(np.max(self.test_clients)))

    @property
    def max_count(self) -> int:
        """Examples of the largest client."""
        return int(np.max(self.train.counts))
