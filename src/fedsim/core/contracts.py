"""Contracts of everything that can be plugged in: tuples of pure functions.

Build them inside a trace or close over them; never pass them to a jitted function. Axes as in `fedsim.core.types`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import optax

from fedsim.core.types import Aggregate, Array, ClientData, CohortReport, DataSpec, Metrics, PyTree, Scalar, Variables

# Data


def accept_any_data(spec: DataSpec) -> None:
    """The `Corruption.validate` of a corruption that works on all data."""
    del spec


class Corruption(NamedTuple):
    """Changes corrupted clients' training data once, before the first round."""

    apply: Callable[[Array, ClientData, Array, DataSpec], ClientData]
    """`(key, data, corrupted [N], spec) -> data`."""
    changed_fields: frozenset[str] = frozenset()
    """Fields of `ClientData` that `apply` changes; the others are shared by all runs of a program."""
    validate: Callable[[DataSpec], None] = accept_any_data
    """`(spec)`: raises `ValueError` if the corruption does not apply to such data."""
    trigger: Callable[[Array, Array, DataSpec], tuple[Array, Array]] | None = None
    """A backdoor's: `(x [T, *feature], y [T], spec) -> (x, y)` with the trigger applied and the target labels.

    The success that is recorded is the share of examples with another label that the model gives the target label.
    """
    change_inputs: Callable[[Array, Array, Array, Array, Array, DataSpec], Array] | None = None
    """`(key, x [m, *feature], positions [m], owners [m], corrupted [N], spec) -> x`: the inputs of some clients.

    They are bit for bit those that `apply` gives, with the same key, the examples at `positions` of the training data:
    all examples of some clients, in any order, with their `owners`. Owner N marks padding, which must not change the
    others. None if the corruption does not change inputs, or needs those of all clients at once; then all inputs must
    be on the device. `fedsim.core.draws` draws the random numbers of selected examples.
    """


# Learning


class Task(NamedTuple):
    """A model with its loss, as pure functions. `fedsim.stateless` builds one from simpler functions."""

    init: Callable[[Array], Variables]
    """`(key) -> variables`."""
    loss: Callable[[Variables, Array, Array, Array, Array], tuple[Array, PyTree]]
    """`(variables, x [B, ...], y [B, ...], mask [B], key) -> (mean loss [], statistics)`, in training mode."""
    metrics: Callable[[Variables, Array, Array, Array], Metrics]
    """`(variables, x [B, ...], y [B, ...], mask [B]) -> metrics`; deterministic."""
    frozen: PyTree = ()
    """Arrays that loss and metrics read and that are never trained; arguments of a program, not constants."""
    bind: Callable[[PyTree], "Task"] | None = None
    """`(arrays like frozen) -> task` that reads these arrays instead."""
    num_classes: Callable[[], int] | None = None
    """Number of classes that the model distinguishes; None if unknown or if the targets are numbers."""


class Schedule(Protocol):
    """A learning rate over rounds."""

    def __call__(self, learning_rate: Scalar, round: Array, /) -> Scalar:
        """The rate in the round after `round` [] completed ones, from the configured `learning_rate`."""


class ClientOptimizer(NamedTuple):
    """The clients' optimizer, with the numbers that some algorithms need to know about it."""

    transformation: optax.GradientTransformation
    """Turns gradients into steps; its state lasts for one round."""
    learning_rate: Scalar
    """[] in this round."""
    momentum: Scalar | None = None
    """[] of heavy-ball momentum; None if there is none."""


Correction: TypeAlias = Callable[[PyTree, PyTree], PyTree]
"""`(gradient, params) -> gradient` to use instead."""


class _LocalTraining(NamedTuple):
    start: Variables
    """The model that `sgd` starts from: the broadcast one."""
    num_steps: Array
    """[] steps that `sgd` takes."""
    learning_rate: Scalar
    """[] of the client optimizer in this round."""
    train: Callable[[Variables, Correction | None], Variables]
    """`(start, correct) -> trained model`; `sgd` calls it."""
    momentum: Scalar | None = None
    """[] of the client optimizer."""


class LocalTraining(_LocalTraining):
    """One client's local training, as an algorithm sees it."""

    __slots__ = ()

    def sgd(self, correct: Correction | None = None, start: Variables | None = None) -> Variables:
        """Trains from `start`, by default `self.start`, with gradients corrected if `correct` is given."""
        start = self.start if start is None else start
        if not isinstance(start, Variables):
            kind = type(start).__name__
            raise TypeError(f"start: must be Variables, got {kind}; use local.start._replace(params=...)")
        return self.train(start, correct)

    def _replace(self, **fields: Any) -> "LocalTraining":
        """With another `start`; the other fields describe what `sgd` does, and cannot change it."""
        if fixed := sorted(fields.keys() - {"start"}):
            raise TypeError(f"LocalTraining: only start can be replaced, got {', '.join(fixed)}")
        return super()._replace(**fields)


class LocalResult(NamedTuple):
    """The result of one client's local training."""

    variables: Variables
    """The trained model; the client sends its difference to the broadcast model."""
    client_state: PyTree
    """The client's next state."""
    message: PyTree
    """What the client sends besides its update."""


class Algorithm(NamedTuple):
    """A local training algorithm. Each client has a `client_state`; all share the broadcast `server_state`."""

    init: Callable[[PyTree], tuple[PyTree, PyTree]]
    """`(params) -> (client_state of one client, server_state)` before the first round."""
    train: Callable[[LocalTraining, PyTree, PyTree], LocalResult]
    """`(local, client_state, server_state) -> result` of one client."""
    update_server_state: Callable[[PyTree, PyTree, Array, int], PyTree]
    """`(server_state, messages [K, ...], valid [K], N) -> server_state`; invalid clients' messages are zeros."""
    scale: Callable[[PyTree, Array], Array] | None = None
    """`(messages [K, ...], weights [K] of the rule) -> factor []` of the aggregated parameters; None means 1."""


# The server


class RootEvaluator(NamedTuple):
    """What a server can compute from its own clean examples, its root data."""

    losses: Callable[[PyTree], Array]
    """`(updates [K, ...]) -> losses [K]` of the broadcast model after each update."""
    train: Callable[[], PyTree]
    """The update that local training on these examples gives."""


def init_stateless(*args: object) -> PyTree:
    """The `init` of an aggregator or attack without state."""
    del args
    return ()


def keep_no_weights(state: PyTree) -> None:
    """The `client_weights` of a rule that keeps no weights of all clients."""
    del state


class Aggregator(NamedTuple):
    """An aggregation rule; `fedsim.aggregators` documents the contract."""

    init: Callable[[Variables, Array, Array], PyTree]
    """`(variables, num_examples [N], losses [N]) -> state`."""
    aggregate: Callable[[PyTree, CohortReport, Array], tuple[Aggregate, PyTree]]
    """`(state, report, key) -> (aggregate, state)`."""
    client_weights: Callable[[PyTree], Array | None] = keep_no_weights
    """`(state) -> alpha [N]`, or None if the rule keeps no weights of all clients."""
    observe_losses: Callable[[PyTree, CohortReport], PyTree] | None = None
    """`(state, report without updates) -> state`: takes losses that are measured after the server step.

    `aggregate` sees NaN losses then. None if the rule uses no losses.
    """
    measure: Callable[[RootEvaluator, CohortReport], PyTree] | None = None
    """`(root, report) -> measurements`, passed to `aggregate` in the report; None if the rule needs no root data."""


class PreAggregator(Protocol):
    """A stage before the rule that changes a report, or mixes its rows into fewer (see `fedsim.aggregators`)."""

    def __call__(self, report: CohortReport, key: Array, /) -> CohortReport:
        """Returns the changed report."""


class AttackContext(NamedTuple):
    """What an attack may know when it forges updates."""

    report: CohortReport
    """The honest updates with the reported losses and numbers of examples: all finite, zeros for invalid clients."""
    corrupted: Array
    """[K] bool."""
    variables: Variables
    """The broadcast model."""
    aggregate: Callable[[CohortReport], Aggregate]
    """The server's pre-aggregators and rule in this round."""


class Attack(NamedTuple):
    """What corrupted clients report; values for honest clients are ignored."""

    init: Callable[[Variables, Array], PyTree] = init_stateless
    """`(variables, num_examples [N]) -> state`."""
    forge_report: Callable[[PyTree, CohortReport, Array, Array], tuple[Array, Array]] | None = None
    """`(state, report without updates, corrupted [K], key) -> (num_examples [K], losses [K])`; None: the truth."""
    forge_updates: Callable[[PyTree, AttackContext, Array], tuple[PyTree, PyTree]] | None = None
    """`(state, context, key) -> (updates [K, ...], state)`; None: the truth."""
