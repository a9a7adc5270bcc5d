"""The server's part of a round: pre-aggregators, the rule, and the optimizer's step."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import chex
import jax
import jax.numpy as jnp
import optax

from fedsim.core.contracts import Aggregator, Algorithm, PreAggregator, RootEvaluator
from fedsim.core.trees import select_clients
from fedsim.core.types import Aggregate, Array, CohortReport, PyTree, Variables

ServerKeys: TypeAlias = tuple[Array, Array]
"""Random keys of a round for the pre-aggregators and for the rule."""


def keep_root_training(evaluate_root: Callable[[], RootEvaluator]) -> Callable[[], RootEvaluator]:
    """The `hoist_root_training` of a server with a single rule: the compiler moves training out of loops itself."""
    return evaluate_root


class WeightedState(NamedTuple):
    """The state of a server with a weighting."""

    weighting: PyTree
    """State of the rule that gives the weights."""
    rule: PyTree
    """State of the rule that aggregates."""


class Server(NamedTuple):
    """Pre-aggregators and a rule, as a round uses them."""

    init: Callable[[Variables, Array, Array], PyTree]
    """`(variables, num_examples [N], losses [N]) -> state`."""
    aggregate: Callable[[CohortReport, PyTree, ServerKeys, Callable[[], RootEvaluator]], tuple[Aggregate, PyTree]]
    """`(report, state, keys, evaluate_root) -> (aggregate, state)`."""
    observe_losses: Callable[[CohortReport, PyTree], PyTree]
    """`(report without updates, state) -> state` after losses that were measured after the server step."""
    client_weights: Callable[[PyTree], PyTree]
    """`(state) -> alpha [N]`, or None if the rule keeps no weights of all clients."""
    hoist_root_training: Callable[[Callable[[], RootEvaluator]], Callable[[], RootEvaluator]] = keep_root_training
    """`(evaluate_root) -> evaluate_root` whose training happens here, once, whatever calls it in branches or loops."""
    info: Mapping[str, jax.ShapeDtypeStruct] | None = None
    """Names, shapes and types of the scalars that the rule reports; None if only tracing it shows them."""


def make_server(
    rule: Aggregator, pre_aggregators: Sequence[PreAggregator] = (), weighting: Aggregator | None = None
) -> Server:
    """The server with this rule after the pre-aggregators; `weighting` as in `Method`."""
    server = Server(
        rule.init, partial(aggregate, rule, pre_aggregators), partial(observe_losses, rule), rule.client_weights
    )
    return server if weighting is None else _weighted(make_server(weighting), server)


def _weighted(weighting: Server, server: Server) -> Server:
    """The `server` that aggregates with the weights of the server `weighting`, whose update is not used."""

    def init(variables: Variables, num_examples: Array, losses: Array) -> WeightedState:
        return WeightedState(
            weighting.init(variables, num_examples, losses), server.init(variables, num_examples, losses)
        )

    def aggregate(
        report: CohortReport, state: WeightedState, keys: ServerKeys, evaluate_root: Callable[[], RootEvaluator]
    ) -> tuple[Aggregate, WeightedState]:
        weighting_keys = keys[0], jax.random.fold_in(keys[1], 1)
        given, weighting_state = weighting.aggregate(report, state.weighting, weighting_keys, evaluate_root)
        valid = report.valid & (given.weights > 0)
        weighted = report._replace(valid=valid, weights=given.weights, updates=mask_invalid(report.updates, valid))
        result, rule_state = server.aggregate(weighted, state.rule, keys, evaluate_root)
        return result._replace(info={**given.info, **result.info}), WeightedState(weighting_state, rule_state)

    def observe_losses(report: CohortReport, state: WeightedState) -> WeightedState:
        return WeightedState(
            weighting.observe_losses(report, state.weighting), server.observe_losses(report, state.rule)
        )

    def client_weights(state: WeightedState) -> PyTree:
        kept = weighting.client_weights(state.weighting)
        return server.client_weights(state.rule) if kept is None else kept

    return Server(init, aggregate, observe_losses, client_weights)


def aggregate(
    rule: Aggregator,
    pre_aggregators: Sequence[PreAggregator],
    report: CohortReport,
    state: PyTree,
    keys: ServerKeys,
    evaluate_root: Callable[[], RootEvaluator],
) -> tuple[Aggregate, PyTree]:
    """Applies pre-aggregators and rule to the report; returns the aggregate and the rule's next state.

    The weights [K] are those of the clients, whatever was mixed. `keys` are for the pre-aggregators and the rule;
    `evaluate_root` is called only if the rule has `measure`.
    """
    mixed, mixing = report, None
    pre_aggregators_key, rule_key = keys
    for position, pre_aggregate in enumerate(pre_aggregators):
        num_rows = mixed.valid.size
        mixed = pre_aggregate(mixed._replace(mixing=None), jax.random.fold_in(pre_aggregators_key, position))
        if mixed.mixing is not None:
            chex.assert_shape(mixed.mixing, (mixed.valid.size, num_rows))
            mixing = mixed.mixing if mixing is None else jnp.matmul(mixed.mixing, mixing, precision="highest")
    mixed = mixed._replace(mixing=None)
    if rule.measure is not None:
        mixed = mixed._replace(measurements=rule.measure(evaluate_root(), mixed))
    result, next_state = rule.aggregate(state, mixed, rule_key)
    update_shapes = jax.tree.map(lambda u: jax.ShapeDtypeStruct(u.shape[1:], u.dtype), report.updates)
    chex.assert_trees_all_equal_shapes_and_dtypes(result.update, update_shapes)
    chex.assert_equal_shape([result.weights, mixed.valid])
    chex.assert_trees_all_equal_shapes_and_dtypes(next_state, state)
    chex.assert_shape(list(result.info.values()), ())
    if mixing is not None:
        result = result._replace(weights=jnp.matmul(result.weights, mixing, precision="highest"))
    return result, next_state


def observe_losses(rule: Aggregator, report: CohortReport, state: PyTree) -> PyTree:
    """The rule's state after losses that were measured after the server step."""
    if rule.observe_losses is None:
        return state
    next_state = rule.observe_losses(state, report)
    chex.assert_trees_all_equal_shapes_and_dtypes(next_state, state)
    return next_state


def rescale(algorithm: Algorithm, aggregate: Aggregate, messages: PyTree, valid: Array) -> Aggregate:
    """Multiplies the aggregated parameters by the algorithm's `scale`, if it has one."""
    if algorithm.scale is None:
        return aggregate
    factor = algorithm.scale(mask_invalid(messages, valid), aggregate.weights)
    chex.assert_shape(factor, ())
    params = jax.tree.map(lambda u: factor.astype(u.dtype) * u, aggregate.update.params)
    return aggregate._replace(update=aggregate.update._replace(params=params))


def server_step(
    optimizer: optax.GradientTransformation, aggregate: Aggregate, variables: Variables, state: PyTree
) -> tuple[Variables, PyTree]:
    """The model and the optimizer's state after a step on the aggregate; unchanged if the round is skipped."""
    params, statistics = variables
    gradient = jax.tree.map(jnp.negative, aggregate.update.params)
    steps, next_state = optimizer.update(gradient, state, params)
    next_statistics = jax.tree.map(jnp.add, statistics, aggregate.update.statistics)  # averages, not optimized
    skipped = jnp.sum(aggregate.weights) == 0
    new, old = (Variables(optax.apply_updates(params, steps), next_statistics), next_state), (variables, state)
    variables, next_state = jax.tree.map(lambda new, old: jnp.where(skipped, old, new), new, old)
    return variables, next_state


def mask_invalid(messages: PyTree, valid: Array) -> PyTree:
    """`messages` [K, ...] with zeros for clients that are not `valid` [K]."""
    return select_clients(valid, messages, jax.tree.map(jnp.zeros_like, messages))
