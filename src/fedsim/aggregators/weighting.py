"""Rules that only choose weights; weightings and the assumed number f of Byzantine clients, for all rules."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Shaped

from fedsim.core import require
from fedsim.core.contracts import Aggregator, RootEvaluator, init_stateless
from fedsim.core.settings import Limit, OnlyIf, Traced
from fedsim.core.trees import nonzero, weighted_sum
from fedsim.core.types import Aggregate, Array, CohortReport, PyTree

NumByzantine = Annotated[
    Array | int | None, Traced(ge=0), "f, assumed number of Byzantine clients in a cohort; default: (K - 3) // 2"
]
Weights: TypeAlias = Float[Array, " K"]
MINORITY = Limit("2 f < K", lambda k: (k - 1) // 2)
WHOLE_MODELS = OnlyIf("server.layerwise", False, "server.layerwise is true: leave it out", is_error=True)
Weighting = Annotated[
    Literal["examples", "equal"], "weights in proportion to the clients' examples (or by server.weighting), or equal"
]


def from_weights(
    compute_weights: Callable[..., Any],
    init: Callable[..., PyTree] = init_stateless,
    client_weights: Callable[[PyTree], Array | None] = lambda state: None,
    info: Callable[[PyTree], dict[str, Array]] = lambda state: {},
    observe_losses: Callable[[PyTree, CohortReport], PyTree] | None = None,
    measure: Callable[[RootEvaluator, CohortReport], PyTree] | None = None,
) -> Aggregator:
    """The aggregator whose update is a weighted sum of the clients' updates.

    `compute_weights(report)` returns weights [K]: non-negative, zero for invalid clients, and with the sum 1, or all
    zero to skip the round. It may also take a `key`, as `compute_weights(report, key)`. A rule with a state has
    `compute_weights(state, report, key)`, with or without the key, that returns weights and the next state. `info`
    returns the scalars to record from the state. The other arguments are as in `Aggregator`.

    >>> import jax.numpy as jnp
    >>> import fedsim
    >>> def lowest_loss(report):
    ...     losses = jnp.where(report.valid, report.losses, jnp.inf)
    ...     return (jnp.arange(losses.size) == jnp.argmin(losses)).astype(float)
    >>> rule = fedsim.aggregators.from_weights(lowest_loss)
    >>> fedsim.aggregators.apply(rule, [[1.0, 2.0], [3.0, 4.0]], losses=[0.7, 0.2]).update.tolist()
    [3.0, 4.0]
    """
    compute = _with_state(compute_weights)

    def aggregate(state: PyTree, report: CohortReport, key: Array) -> tuple[Aggregate, PyTree]:
        weights, state = compute(state, report, key)
        require.shape(weights, report.valid.shape, "a rule's weights")
        weights = jnp.asarray(weights, jnp.float32)
        return Aggregate(weighted_sum(weights, report.updates), weights, info(state)), state

    return Aggregator(init, aggregate, client_weights, observe_losses, measure)


def stateless(
    aggregate: Callable[..., Aggregate], measure: Callable[[RootEvaluator, CohortReport], PyTree] | None = None
) -> Aggregator:
    """The aggregator without state that computes `aggregate(report)` or `aggregate(report, key)`."""
    return Aggregator(init_stateless, _with_state(aggregate), measure=measure)


def _with_state(function: Callable[..., Any]) -> Callable[[PyTree, CohortReport, Array], tuple[Any, PyTree]]:
    """`function(state, report, key)`, which may have left out the state or the key.

    Raises `ValueError` if its parameters do not say which.
    """
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.default is p.empty or p.name in ("state", "key")]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_all = len(names) == 3 or any(p.kind is p.VAR_POSITIONAL for p in parameters)
    takes_state, takes_key = takes_all or names[:1] == ["state"], takes_all or names[1:] == ["key"]
    needs_others = any(p.kind is p.KEYWORD_ONLY for p in parameters)
    if needs_others or not (takes_all or len(names) == 1 + takes_state + takes_key):
        forms = "(report), (report, key), (state, report) or (state, report, key)"
        raise ValueError(f"compute_weights: must take {forms}, got {signature}")

    def call(state: PyTree, report: CohortReport, key: Array) -> tuple[Any, PyTree]:
        result = function(*[state] * takes_state, report, *[key] * takes_key)
        expected = "a pair with the next state, since the function takes the state"
        return require.pair(result, expected) if takes_state else (result, state)

    return call


def normalize(weights: Weights) -> Weights:
    """`weights` divided by their sum; all zero if it is zero, which skips the round."""
    total = jnp.sum(weights)
    return jnp.where(total > 0, weights / nonzero(total), 0.0)


def example_weights(mask: Shaped[Array, " K"], report: CohortReport) -> Weights:
    """Weights in proportion to the examples m_k of the valid clients, times `mask`, of booleans or shares.

    If another rule gave the clients weights (`report.weights`), these take the place of the examples.
    """
    sizes = report.num_examples if report.weights is None else report.weights
    return normalize(jnp.where(report.valid, sizes, 0).astype(jnp.float32) * mask)


def equal_weights(mask: Shaped[Array, " K"]) -> Weights:
    """Equal weights for the clients, times `mask`, of booleans or shares."""
    return normalize(mask.astype(jnp.float32))


def weights_by(weighting: str, mask: Shaped[Array, " K"], report: CohortReport) -> Weights:
    """Weights of the valid clients by a `Weighting`, times `mask`, of booleans or shares."""
    return example_weights(mask, report) if weighting == "examples" else equal_weights(mask * report.valid)


def assumed_byzantine(
    num_byzantine: Array | int | None, report: CohortReport, limit: Limit = MINORITY
) -> Int[Array, ""]:
    """f: `num_byzantine`, or (K - 3) // 2 if that is None; at least 0 and within the `limit`. K counts valid clients.

    Raises `ValueError` if `num_byzantine` is not traced and exceeds what a cohort without invalid clients allows.
    """
    limit.check("num_byzantine", num_byzantine, report.valid.size)
    num_valid = jnp.sum(report.valid)
    f = (num_valid - 3) // 2 if num_byzantine is None else num_byzantine
    return jnp.maximum(jnp.minimum(f, limit.largest(num_valid)), 0)


def mix_updates(report: CohortReport, mixing: Float[Array, "J K"]) -> CohortReport:
    """The report in which update j is the sum of the K updates with the shares `mixing[j]`."""
    updates = jax.vmap(weighted_sum, (0, None))(mixing, report.updates)
    return report._replace(updates=updates, mixing=mixing)
