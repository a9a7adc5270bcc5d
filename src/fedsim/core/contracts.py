"""Contracts of everything that can be plugged in: tuples of pure functions.

Build them inside a trace or close over them; never pass them to a jitted function. Axes as in `fedsim.core.types`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import optax
from jaxtyping import Bool, Float, Int, Shaped

from fedsim.core.types import Aggregate, Array, CohortReport, Metrics, PyTree, Scalar, Updates, Variables

# Learning


class LossFunction(Protocol):
    """The mean loss of the examples in `mask`, in training mode, and the model's next statistics."""

    def __call__(
        self,
        variables: Variables,
        x: Shaped[Array, "B ..."],
        y: Shaped[Array, "B ..."],
        mask: Bool[Array, " B"],
        key: Array,
        /,
    ) -> tuple[Float[Array, ""], PyTree]: ...


class MetricsFunction(Protocol):
    """The metrics of the examples in `mask`; deterministic."""

    def __call__(
        self, variables: Variables, x: Shaped[Array, "B ..."], y: Shaped[Array, "B ..."], mask: Bool[Array, " B"], /
    ) -> Metrics: ...


class Task(NamedTuple):
    """A model with its loss, as pure functions. `fedsim.stateless` builds one from simpler functions."""

    init: Callable[[Array], Variables]
    """The initial model, from a key."""
    loss: LossFunction
    metrics: MetricsFunction
    frozen: PyTree = ()
    """Arrays that loss and metrics read and that are never trained; arguments of a program, not constants."""
    bind: Callable[[PyTree], "Task"] | None = None
    """`(arrays like frozen) -> task` that reads these arrays instead."""
    num_classes: Callable[[], int] | None = None
    """Number of classes that the model distinguishes; None if unknown or if the targets are numbers."""
    outputs: Callable[[Variables, Array], Array] | None = None
    """`(variables, x [B, *feature]) -> outputs [B, ...]` in evaluation, such as logits; None if there are none."""


class Schedule(Protocol):
    """A learning rate over rounds."""

    def __call__(self, learning_rate: Scalar, round: Int[Array, ""], /) -> Scalar:
        """The rate in the round after `round` completed ones, from the configured `learning_rate`."""


class ClientOptimizer(NamedTuple):
    """The clients' optimizer, with the numbers that some algorithms need to know about it."""

    transformation: optax.GradientTransformation
    """Turns gradients into steps; its state lasts for one round."""
    learning_rate: Scalar
    """In this round."""
    momentum: Scalar | None = None
    """Heavy-ball momentum; None if there is none."""


Correction: TypeAlias = Callable[[PyTree, PyTree], PyTree]
"""`(gradient, params) -> gradient` to use instead; or the same of a step, which is added to the parameters."""


class _LocalTraining(NamedTuple):
    start: Variables
    """The model that `sgd` starts from: the broadcast one."""
    num_steps: Int[Array, ""]
    """Steps that `sgd` takes."""
    learning_rate: Scalar
    """Of the client optimizer in this round."""
    train: Callable[..., Variables]
    """`(start, correct) -> trained model`, or `(start, correct, correct_step)`; `sgd` calls it."""
    momentum: Scalar | None = None
    """Of the client optimizer."""
    num_examples: Int[Array, ""] | None = None
    """Of the client."""


class LocalTraining(_LocalTraining):
    """One client's local training, as an algorithm sees it."""

    __slots__ = ()

    def sgd(
        self, correct: Correction | None = None, start: Variables | None = None, correct_step: Correction | None = None
    ) -> Variables:
        """Trains from `start`, by default `self.start`, with gradients and steps corrected if functions are given."""
        start = self.start if start is None else start
        if not isinstance(start, Variables):
            kind = type(start).__name__
            raise TypeError(f"start: must be Variables, got {kind}; use local.start._replace(params=...)")
        return self.train(start, correct, *([] if correct_step is None else [correct_step]))

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
    message: PyTree = ()
    """What the client sends besides its update."""


class TrainClient(Protocol):
    """Runs one client's round."""

    def __call__(self, local: LocalTraining, client_state: PyTree, server_state: PyTree, /) -> LocalResult: ...


class UpdateServerState(Protocol):
    """The next `server_state`; messages of invalid clients are zeros, and `num_clients` of all have examples."""

    def __call__(
        self, server_state: PyTree, messages: Updates, valid: Bool[Array, " K"], num_clients: Scalar, /
    ) -> PyTree: ...


ALGORITHM_STATES = "an algorithm's (client state, server state)"


class Algorithm(NamedTuple):
    """A local training algorithm. Each client has a `client_state`; all share the broadcast `server_state`."""

    init: Callable[[PyTree], tuple[PyTree, PyTree]] = lambda params: ((), ())
    """`(params) -> (client_state of one client, server_state)` before the first round; by default there are none."""
    train: TrainClient = lambda local, client_state, _: LocalResult(local.sgd(), client_state)
    update_server_state: UpdateServerState = lambda server_state, messages, valid, num_clients: server_state
    """By default the state stays as it is."""
    scale: Callable[[Updates, Float[Array, " K"]], Float[Array, ""]] | None = None
    """`(messages, weights of the rule) -> factor` of the aggregated parameters; None means 1."""
    needs_sgd: bool = False
    """Whether its formulas hold for SGD only; a configuration with another `client.optimizer` is refused."""
    personal: Callable[[PyTree, Variables], Variables] | None = None
    """`(client_state, broadcast model) -> model` that is measured on the client's own test examples; None: there is
    none."""


# The server


class RootEvaluator(NamedTuple):
    """What a server can compute from its own clean examples, its root data."""

    losses: Callable[[Updates], Float[Array, " K"]]
    """The losses of the broadcast model after each of the updates."""
    train: Callable[[], Variables]
    """The update that local training on these examples gives."""


def init_stateless(*args: object) -> PyTree:
    """The `init` of an aggregator or attack without state."""
    return ()


class InitRule(Protocol):
    """The rule's state before the first round, from what all clients report."""

    def __call__(
        self, variables: Variables, num_examples: Int[Array, " N"], losses: Float[Array, " N"], /
    ) -> PyTree: ...


class AggregateReport(Protocol):
    """The aggregate of a round, and the rule's next state."""

    def __call__(self, state: PyTree, report: CohortReport, key: Array, /) -> tuple[Aggregate, PyTree]: ...


class Aggregator(NamedTuple):
    """An aggregation rule; `fedsim.aggregators` documents the contract."""

    init: InitRule
    aggregate: AggregateReport
    client_weights: Callable[[PyTree], Float[Array, " N"] | None] = lambda state: None
    """`(state) -> alpha`, or None if the rule keeps no weights of all clients."""
    observe_losses: Callable[[PyTree, CohortReport], PyTree] | None = None
    """`(state, report without updates) -> state`: takes losses that are measured after the server step.

    `aggregate` sees NaN losses then. None if the rule uses no losses.
    """
    measure: Callable[[RootEvaluator, CohortReport], PyTree] | None = None
    """`(root, report) -> measurements`, passed to `aggregate` in the report; None if the rule needs no root data."""


@runtime_checkable
class PreAggregator(Protocol):
    """A stage before the rule that changes a report, or mixes its rows into fewer (see `fedsim.aggregators`)."""

    def __call__(self, report: CohortReport, key: Array, /) -> CohortReport:
        """Returns the changed report."""


class NextLoss(Protocol):
    """The mean loss of the clients in `mask`, each on a random batch of its own, after the server's step.

    It can be differentiated with respect to the aggregate's update.
    """

    def __call__(self, aggregate: Aggregate, mask: Bool[Array, " K"], key: Array, /) -> Float[Array, ""]: ...


class AttackContext(NamedTuple):
    """What an attack may know when it forges updates."""

    report: CohortReport
    """The honest updates with the reported losses and numbers of examples: all finite, zeros for invalid clients."""
    malicious: Bool[Array, " K"]
    """The clients whose updates are forged."""
    variables: Variables
    """The broadcast model."""
    aggregate: Callable[[CohortReport], Aggregate]
    """The server's pre-aggregators and rule in this round, with the random draws and root data that they will use."""
    next_loss: NextLoss | None = None
    """The loss after the server's step; None outside of a round."""


class ForgeReport(Protocol):
    """The numbers of examples and losses that malicious clients report; `report` has no updates.

    Negative numbers count as 0. They are int32: a product of large ones may overflow and be negative.
    """

    def __call__(
        self, state: PyTree, report: CohortReport, malicious: Bool[Array, " K"], key: Array, /
    ) -> tuple[Int[Array, " K"], Float[Array, " K"]]: ...


class ForgeUpdates(Protocol):
    """The updates that malicious clients send, and the attack's next state."""

    def __call__(self, state: PyTree, context: AttackContext, key: Array, /) -> tuple[Updates, PyTree]: ...


class Attack(NamedTuple):
    """What malicious clients report: the truth where a function is None; values for honest clients are ignored."""

    init: Callable[[Variables, Int[Array, " N"]], PyTree] = init_stateless
    """`(variables, num_examples) -> state`."""
    forge_report: ForgeReport | None = None
    forge_updates: ForgeUpdates | None = None
