"""The pytrees that travel through a simulation, each field with its shape.

Axes: `N` clients, `M` training examples of all clients, `K` clients of one round (the cohort), `B` batch, `T` test
examples. NamedTuples are pytrees of (possibly traced) arrays; frozen dataclasses are static, unless registered.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from jaxtyping import PyTree as PyTree

Array: TypeAlias = jax.Array
Scalar: TypeAlias = jax.Array | float
"""A number, or the traced array [] that stands for it in a compiled program."""
Updates: TypeAlias = PyTree[Shaped[Array, "K ..."]]
"""Arrays with a row for each client of a cohort."""
InputKind: TypeAlias = Literal["image", "text", "vector"]


# Data


class ClientData(NamedTuple):
    """The training data of all clients, concatenated client by client; no padding is stored."""

    x: Shaped[Array, " M *feature"]
    """uint8 pixels, integer characters or float32 features."""
    y: Shaped[Array, " M *target"]
    """int32 classes or float32 numbers."""
    offsets: Int[Array, " N"]
    """Position of each client's first example."""
    num_examples: Int[Array, " N"]
    """m_i; 0 means that the client is excluded."""
    corrupted: Bool[Array, " N"]
    """The clients with corrupted data; seen by attacks and records, never by an aggregator."""
    malicious: Bool[Array, " N"] | None = None
    """The clients that forge reports; None: the corrupted ones."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and targets that belong to no client. Hashed by identity, so that a `Simulation` may hold them."""

    x: Shaped[Array, " R *feature"]
    """As in `ClientData`."""
    y: Shaped[Array, " R *target"]
    """As in `ClientData`."""


class ClientSlice(NamedTuple):
    """One client's slice of `ClientData`."""

    client_id: Int[Array, ""]
    """Its number, from 0."""
    offset: Int[Array, ""]
    """Position of its first example."""
    num_examples: Int[Array, ""]
    """m_i; 0 means padding or an excluded client."""


@dataclass(frozen=True)
class DataSpec:
    """Kind and shape of a data set's examples; static."""

    inputs: InputKind
    """Kind of the inputs."""
    num_classes: int
    """0 if the targets are numbers."""
    shape: tuple[int, ...]
    """Shape of one input."""
    dtype: str
    """Type of the inputs."""
    target_shape: tuple[int, ...] = ()
    """Shape of one target."""

    @property
    def num_outputs(self) -> int:
        """Outputs that a model must have: one logit per class, or one number per target."""
        return self.num_classes or int(np.prod(self.target_shape))


@dataclass(frozen=True, eq=False, repr=False)
class FederatedDataset:
    """A clean data set partitioned among clients, as NumPy arrays on the host."""

    name: str
    """Name of the data set."""
    train: ClientData
    """Training data, as NumPy arrays."""
    x_test: Shaped[np.ndarray, " T *feature"]
    """Test inputs."""
    y_test: Shaped[np.ndarray, " T *target"]
    """Test targets."""
    num_classes: int
    """0 if the targets are numbers."""
    inputs: InputKind
    """Kind of the inputs."""
    test_clients: Int[np.ndarray, " T"] | None = None
    """The client of each test example (N or more: not in training); None if they belong to no client."""
    root: Examples | None = None
    """Clean examples that only the server has."""
    validation: Examples | None = None
    """Clean examples for choosing settings, held out from the clients."""
    client_names: tuple[str, ...] = ()
    """Name of each client, and after them of those that have test examples alone; empty if they have none."""
    label_names: tuple[str, ...] = ()
    """Name of each class; empty if they have none."""
    notes: tuple[str, ...] = ()
    """Remarks for the user about usable but unusual data."""
    are_windows: bool = True
    """Whether texts are windows of longer ones, so that neighbors overlap."""

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.spec.shape))
        examples = f"{len(self.train.y):,} + {len(self.y_test):,} examples of {shape} {self.inputs} inputs"
        clients = f"{self.num_clients:,} client{'s' * (self.num_clients != 1)}"
        return f"<{self.name}: {clients}, {examples}, {self.num_classes or 'no'} classes>"

    @property
    def spec(self) -> DataSpec:
        """Kind and shape of the examples."""
        x, y = self.train.x, self.train.y
        return DataSpec(self.inputs, self.num_classes, x.shape[1:], str(x.dtype), y.shape[1:])

    @property
    def num_clients(self) -> int:
        """Number of clients N."""
        return len(self.train.num_examples)

    @property
    def num_test_clients(self) -> int:
        """Clients that have test examples, counting all N training clients; 0 if test examples belong to no client."""
        return 0 if self.test_clients is None else max(self.num_clients, 1 + int(np.max(self.test_clients)))

    @property
    def max_num_examples(self) -> int:
        """Training examples of the largest client."""
        return int(np.max(self.train.num_examples))


# Models


class Variables(NamedTuple):
    """A model. Both parts travel between clients and server."""

    params: PyTree
    """Parameters, trained by gradients."""
    statistics: PyTree = ()
    """Updated by each training step without gradients, such as running means; () if there are none."""


class Metrics(NamedTuple):
    """Sums over examples, so that parts merge by addition."""

    loss_sum: Float[Array, ""]
    """Sum of the losses."""
    num_correct: Float[Array, ""]
    """Correct predictions; NaN if the targets are numbers."""
    num_examples: Float[Array, ""]
    """Examples summed over."""
    named: dict[str, tuple[Float[Array, ""], Float[Array, ""]]] = {}  # noqa: RUF012
    """Other sums, each with what it is divided by; the quotient over all test examples is recorded by this name."""


class HParams(NamedTuple):
    """Numbers that may differ between the runs of one compiled program: data, not shape."""

    learning_rate: Scalar = 0.1
    """Of the clients' optimizer."""
    server_learning_rate: Scalar = 1.0
    """Of the server optimizer."""
    settings: dict[str, Scalar] = {}  # noqa: RUF012
    """Traced settings of rules, attacks and so on, by dotted key such as "arfl.lam"."""
    momentum: Scalar | None = None
    """Of the clients' SGD."""
    weight_decay: Scalar | None = None
    """Of the clients' SGD."""


# A round


class CohortReport(NamedTuple):
    """Everything that the server sees of a round."""

    client_ids: Int[Array, " K"]
    """All different."""
    num_examples: Int[Array, " K"]
    """As reported."""
    losses: Float[Array, " K"]
    """Mean training loss of each client; inf if it is not finite, NaN if it is not reported (yet)."""
    updates: Updates
    """`Variables`: local minus broadcast model."""
    valid: Bool[Array, " K"]
    """The client has examples and answered, and its update (and loss, if recorded) is finite."""
    weights: Float[Array, " K"] | None = None
    """Weights that another rule gave (`server.weighting`), in place of the clients' examples; None: there is none.
    Clients without one are not valid."""
    mixing: Float[Array, "K C"] | None = None
    """Share of each of the C clients in each row, which sum to 1 in a valid row; None if row k is client k."""
    measurements: PyTree = None
    """Result of the rule's `measure`; None if it has none."""
    info: dict[str, Array] = {}  # noqa: RUF012
    """Scalars of pre-aggregators to record, by name."""


class Aggregate(NamedTuple):
    """The result of an aggregation rule."""

    update: PyTree
    """What the server optimizer adds to the model, like one client's update."""
    weights: Float[Array, " K"]
    """Share of each client, summing to 1; all zero skips the round and keeps the model."""
    info: dict[str, Array] = {}  # noqa: RUF012
    """Scalars to record, by name."""


class SimulationState(NamedTuple):
    """Everything that a run carries from round to round."""

    variables: Variables
    """The global model."""
    optimizer: PyTree
    """State of the server optimizer."""
    aggregator: PyTree
    """State of the aggregation rule."""
    attack: PyTree
    """State of the attack."""
    client_states: PyTree
    """[N, ...] state that the algorithm keeps for each client, or [U, ...] for some (`Simulation.state_rows`)."""
    server_state: PyTree
    """State that the algorithm keeps at the server."""
    key: Array
    """Of the run's rounds; round t uses `fold_in(key, t)`."""
    round: Int[Array, ""]
    """Rounds completed."""


class RoundRecord(NamedTuple):
    """What is recorded of a round (stacked over rounds by `Simulation.run_rounds`)."""

    client_ids: Int[Array, " K"]
    """The cohort."""
    losses: Float[Array, " K"]
    """As reported; NaN if not recorded or not answered."""
    weights: Float[Array, " K"]
    """Share of each client in the aggregate."""
    valid: Bool[Array, " K"]
    """As in `CohortReport`."""
    info: dict[str, Array]
    """Scalars that the rule reports, by name."""
