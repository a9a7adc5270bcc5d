"""The server as a chain of stages, which is a rule itself."""

import inspect
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fedsim.core import require
from fedsim.core.contracts import Aggregator, PreAggregator, RootEvaluator
from fedsim.core.trees import mask_invalid
from fedsim.core.types import Aggregate, Array, CohortReport, PyTree, Variables

Stage: TypeAlias = PreAggregator | Aggregator
AGGREGATED = "a rule's (Aggregate, next state)"
KEY_OF_WEIGHTS = 2**31  # beyond the keys of arrays or draws into which a rule may split its own


class ChainKeys(NamedTuple):
    """The random keys of a chain in a round; a single key is split into both."""

    pre_aggregators: Array
    """[]; the pre-aggregators take `fold_in(0)`, `fold_in(1)` and so on."""
    rule: Array
    """[] of the last rule; those that give weights take `fold_in(KEY_OF_WEIGHTS)`, the next number and so on."""


class Chain(Aggregator):
    """A rule whose `aggregate` also takes `ChainKeys`."""

    __slots__ = ()


def chain(*stages: Stage) -> Chain:
    """The rule that applies `stages` in order: pre-aggregators, rules that give weights, and last a rule.

    A pre-aggregator changes the report or mixes its rows. The weights of a rule before the last one take the place of
    the clients' examples in later stages, and clients without a weight are left out, as if they had not answered. The
    result's weights [K] are the clients', whatever was mixed. The state is a tuple of the rules' states; alpha [N] is
    that of the first rule that keeps one. Raises `ValueError` if the last stage is no rule.

    >>> import fedsim
    >>> from fedsim.aggregators import apply, nnm, trimmed_mean
    >>> rule = fedsim.chain(nnm(num_byzantine=1), trimmed_mean(num_byzantine=1))
    >>> apply(rule, [[1.0], [2.0], [3.0], [99.0]]).update.tolist()
    [2.0]
    """
    if wrong := [stage for stage in stages if not isinstance(stage, Aggregator) and not is_pre_aggregator(stage)]:
        remedy = "; pass stages as arguments, not as a list" if isinstance(wrong[0], list | tuple) else ""
        remedy = (
            "; stages take (report, key), functions that make them must be called" if callable(wrong[0]) else remedy
        )
        got = getattr(wrong[0], "__name__", type(wrong[0]).__name__)
        raise ValueError(f"stages: must be pre-aggregators and rules, such as aggregators.nnm(), got {got}{remedy}")
    if not stages or not isinstance(last := stages[-1], Aggregator):
        got = getattr(stages[-1], "__qualname__", type(stages[-1]).__name__).partition(".")[0] if stages else "none"
        raise ValueError(f"stages: the last one must be a rule, such as aggregators.median(), got {got}")
    rules = [stage for stage in stages if isinstance(stage, Aggregator)]

    def init(variables: Variables, num_examples: Array, losses: Array) -> PyTree:
        return tuple(rule.init(variables, num_examples, losses) for rule in rules)

    def aggregate(state: PyTree, report: CohortReport, key: Array | ChainKeys) -> tuple[Aggregate, PyTree]:
        keys = key if isinstance(key, ChainKeys) else ChainKeys(*jax.random.split(key))
        mixing_keys = map(partial(jax.random.fold_in, keys.pre_aggregators), count())
        results: list[tuple[Aggregate, PyTree]] = []
        root, current = report.measurements, report._replace(measurements=None)
        for stage in stages[:-1]:
            if isinstance(stage, Aggregator):
                rule_key = jax.random.fold_in(keys.rule, KEY_OF_WEIGHTS + len(results))
                results.append(run_rule(stage, state[len(results)], current, rule_key, root))
                weights = results[-1][0].weights
                valid = current.valid & (weights > 0)
                losses = jnp.where(valid, current.losses, jnp.nan)
                updates = mask_invalid(current.updates, valid)
                current = current._replace(valid=valid, weights=weights, losses=losses, updates=updates)
            else:
                current = _mix(current, stage, next(mixing_keys))
        results.append(run_rule(last, state[-1], current, keys.rule, root))
        aggregates, next_states = zip(*results, strict=True)
        weights, mixing = aggregates[-1].weights, current.mixing
        if mixing is not None:
            weights = jnp.matmul(weights, mixing, precision="highest")
        info = {name: value for result in aggregates for name, value in result.info.items()}
        return Aggregate(aggregates[-1].update, weights, current.info | info), next_states

    def client_weights(state: PyTree) -> PyTree:
        kept = [rule.client_weights(own) for rule, own in zip(rules, state, strict=True)]
        return next((alpha for alpha in kept if alpha is not None), None)

    def observe(state: PyTree, report: CohortReport) -> PyTree:
        return tuple(observe_losses(rule, own, report) for rule, own in zip(rules, state, strict=True))

    uses_losses = any(rule.observe_losses is not None for rule in rules)
    uses_root = any(rule.measure is not None for rule in rules)
    return Chain(
        init,
        aggregate,
        client_weights,
        observe if uses_losses else None,
        (lambda root, report: root) if uses_root else None,  # each rule measures what its own stages leave of a report
    )


def is_pre_aggregator(stage: Any) -> bool:
    """Whether it takes a report and a key, as far as Python can tell. Functions that make pre-aggregators do not."""
    try:
        inspect.signature(stage).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # of built-in functions
        pass
    return True


def _mix(report: CohortReport, pre_aggregate: PreAggregator, key: Array) -> CohortReport:
    """The changed report; its `mixing` and `info` include those of stages before."""
    mixed = pre_aggregate(report._replace(mixing=None), key)
    require.instance(mixed, CohortReport, "the result of a pre-aggregator")
    mixed = mixed._replace(info=report.info | mixed.info)
    if report.weights is not None:
        require.array(mixed.weights, f"float32[{mixed.valid.size}]", "the weights of a pre-aggregator's result")
    if mixed.mixing is None:
        require.shape(mixed.valid, report.valid.shape, "valid of a pre-aggregator's result without mixing")
        return mixed._replace(mixing=report.mixing)
    require.shape(mixed.mixing, (mixed.valid.size, report.valid.size), "mixing")
    if report.mixing is None:
        return mixed
    return mixed._replace(mixing=jnp.matmul(mixed.mixing, report.mixing, precision="highest"))


def run_rule(
    rule: Aggregator, state: PyTree, report: CohortReport, key: Any, root: RootEvaluator | None
) -> tuple[Aggregate, PyTree]:
    """The rule's `aggregate`, with what it measures on `root`; raises `AssertionError` if shapes break the contract.

    `key` is a key, or the `ChainKeys` of a chain.
    """
    fixed = jax.lax.stop_gradient(report)  # the loops of losses on root data have no derivative
    measurements = None if rule.measure is None or root is None else rule.measure(root, fixed)
    seen = report._replace(measurements=measurements, mixing=None)
    result, next_state = require.pair(rule.aggregate(state, seen, key), AGGREGATED)
    require.instance(result, Aggregate, "a rule's result")
    one_update = jax.tree.map(lambda u: jax.ShapeDtypeStruct(u.shape[1:], u.dtype), report.updates)
    require.like(result.update, one_update, "a rule's update")
    require.array(result.weights, f"float32[{report.valid.size}]", "a rule's weights")
    require.like(next_state, state, "a rule's state")
    for name, value in result.info.items():
        require.shape(value, (), f"a rule's info: {name}")
    return result, next_state


def observe_losses(rule: Aggregator, state: PyTree, report: CohortReport) -> PyTree:
    """The rule's state after losses that were measured after the server step."""
    if rule.observe_losses is None:
        return state
    next_state = rule.observe_losses(state, report)
    require.like(next_state, state, "after observe_losses a rule's state")
    return next_state
