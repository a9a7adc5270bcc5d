"""The contract of an aggregator, as `fedsim.aggregators` states it."""

from collections.abc import Collection

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.core.chain import AGGREGATED
from fedsim.core.contracts import Aggregator
from fedsim.core.types import Aggregate, Array, CohortReport, PyTree
from fedsim.testing import require
from fedsim.testing.clauses import Round, StatefulFunctionCase, by_name, check, gradient, jit, state, take_rows, vmap
from fedsim.testing.reports import (
    COHORT_SIZE,
    ROOT,
    draw_clients,
    draw_report,
    draw_reports,
    equalize_updates,
    invalidate,
    make_variables,
)

KEY = jax.random.key(0)
TIED = ("zero updates",)  # reports of which rules may select clients by their order


class _Case(StatefulFunctionCase):
    def __init__(self, aggregator: Aggregator, seed: int) -> None:
        self.aggregator, self.rng = aggregator, np.random.default_rng(seed)
        self.num_examples, self.losses = draw_clients(self.rng)
        reports = draw_reports(self.rng, self.num_examples)
        inputs = {name: (self.add_measurements(report),) for name, report in reports.items()}
        super().__init__(self.step, aggregator.init(make_variables(), self.num_examples, self.losses), inputs)

    def step(self, state: PyTree, report: CohortReport) -> tuple[Aggregate, PyTree]:
        return require.pair(self.aggregator.aggregate(state, report, KEY), AGGREGATED)

    def add_measurements(self, report: CohortReport) -> CohortReport:
        """The report with the rule's measurements on root data, if it has any."""
        measure = self.aggregator.measure
        return report if measure is None else report._replace(measurements=measure(ROOT, report))

    def require_same(self, outputs: tuple[PyTree, PyTree], round: Round, message: str) -> None:
        ((update, *rest), next_state), (expected_update, *expected_rest) = outputs, round.result
        require.close((rest, next_state), (expected_rest, round.next_state), message)
        require.close(update, expected_update, message, require.max_abs(round.inputs[0].updates))


def _shapes(case: _Case) -> None:
    for round in case.rounds:
        aggregate, (report,) = round.result, round.inputs
        is_aggregate = isinstance(aggregate, Aggregate)
        require.true(is_aggregate, f"the result must be an Aggregate, got {type(aggregate).__name__}")
        require.like(aggregate.update, take_rows(report.updates, 0), "the update")
        require.array(aggregate.weights, f"float32[{COHORT_SIZE}]", "the weights")


def _finite(case: _Case) -> None:
    for round in case.rounds:
        require.finite(round.result.update, f"with {round.name} the update")
        require.finite(round.result.weights, f"with {round.name} the weights")


def _weights(case: _Case) -> None:
    for round in case.rounds:
        _require_weights(round.result.weights, f"with {round.name} the weights")


def _require_weights(weights: Array, name: str) -> None:
    total = float(jnp.sum(weights))
    require.true(jnp.all(weights >= 0), f"{name} must not be negative, got {float(jnp.min(weights)):.6g}")
    require.true(abs(total - 1) < 1e-5 or total == 0, f"{name} must sum to 1 or 0, got {total:.6g}")


def _invalid(case: _Case) -> None:
    for round in case.rounds:
        on_invalid = jnp.where(round.inputs[0].valid, 0.0, round.result.weights)
        require.true(jnp.all(on_invalid == 0), f"with {round.name} the weights of invalid clients must be 0")


def _no_valid_clients(case: _Case) -> None:
    for round in case.rounds:
        if not bool(jnp.any(round.inputs[0].valid)):
            is_zero = all(bool(jnp.all(u == 0)) for u in jax.tree.leaves(round.result.update))
            require.true(is_zero, "without valid clients the update must be 0")


def _client_weights(case: _Case) -> None:
    for round in case.rounds:
        alpha = case.aggregator.client_weights(round.next_state)
        if alpha is not None:
            require.array(alpha, f"float32[{len(case.num_examples)}]", "alpha")
            require.finite(alpha, "alpha")
            _require_weights(alpha, "alpha")


def _info(case: _Case) -> None:
    first = case.rounds[0].result.info
    for round in case.rounds:
        info = round.result.info
        names = f"with {round.name} the names in info must be {sorted(first)}, as in the first round"
        require.true(set(info) == set(first), f"{names}, got {sorted(info)}")
        for name, value in info.items():
            require.true(jnp.shape(value) == (), f"info: {name} must be a scalar, got {require.array_type(value)}")
            require.like(value, first[name], f"with {round.name} {name} in info")


def _trace(case: _Case) -> None:
    """As in the program of a run; the clause `jit` is about `aggregate`."""
    jax.eval_shape(case.aggregator.init, make_variables(), case.num_examples, case.losses)
    jax.eval_shape(case.aggregator.client_weights, case.rounds[0].next_state)
    jax.eval_shape(case.add_measurements, *case.rounds[0].inputs)


def _order(case: _Case) -> None:
    order = case.rng.permutation(COHORT_SIZE)
    for round in case.rounds:
        if round.name not in TIED:
            (report,) = round.inputs
            permuted = take_rows(report._replace(measurements=None), order)
            permuted = case.add_measurements(jax.tree.map(jnp.asarray, permuted))
            aggregate, next_state = case.jitted(round.state, permuted)
            message = f"with {round.name} {{}} must not depend on the order of the clients, but differs"
            scale = require.max_abs(report.updates)
            require.close(aggregate.update, round.result.update, message.format("the update"), scale)
            expected_weights = np.asarray(round.result.weights)[order]
            require.close(aggregate.weights, expected_weights, message.format("a client's weight"))
            require.close(next_state, round.next_state, message.format("the state"))


def _observe_losses(case: _Case) -> None:
    if (observe_losses := case.aggregator.observe_losses) is None:
        return
    jitted = jax.jit(observe_losses)
    for number, round in enumerate(case.rounds):
        (report,) = round.inputs
        aggregate, next_state = case.jitted(round.state, report._replace(losses=jnp.full(COHORT_SIZE, jnp.nan)))
        name = f"with {round.name} whose losses are not reported yet"
        require.finite(aggregate.update, f"{name} the update")
        require.finite(aggregate.weights, f"{name} the weights")
        _require_weights(aggregate.weights, f"{name} the weights")
        observed = report._replace(updates=())
        after = jitted(next_state, observed)
        require.like(after, round.state, f"after the losses of {round.name} the state")
        require.no_new_nan(after, round.state, f"after the losses of {round.name} the state")
        if number == 0:  # uncompiled calls are slow
            message = f"inside jax.jit the state differs ({round.name})"
            require.close(after, observe_losses(next_state, observed), message)


def _identical(case: _Case) -> None:
    """In a federation whose clients all participate."""
    num_examples = jnp.asarray(case.rng.integers(1, 200, COHORT_SIZE), jnp.int32)
    report = equalize_updates(draw_report(case.rng, num_examples))
    losses = jnp.zeros(COHORT_SIZE).at[report.client_ids].set(report.losses)
    first_state = case.aggregator.init(make_variables(), num_examples, losses)
    for who, sent in (("clients", report), ("valid clients", invalidate(report, [1, 3, 4, 6], jnp.inf))):
        aggregate, _ = case.jitted(first_state, case.add_measurements(sent))
        if who == "clients" or jnp.any(aggregate.weights > 0):
            message = f"the update must be that of the {who} if all send the same one, but differs"
            require.close(aggregate.update, take_rows(report.updates, 0), message)


CLAUSES = by_name(
    state,
    _shapes,
    _finite,
    _weights,
    _invalid,
    _no_valid_clients,
    _client_weights,
    _info,
    jit,
    vmap,
    _trace,
    _order,
    _observe_losses,
    gradient,
    _identical,
)


def check_aggregator(aggregator: Aggregator, *, seed: int = 0, skip: Collection[str] = ()) -> None:
    """Raises `AssertionError` with a sentence if `aggregator` violates the contract; `skip` names clauses to leave out.

    Rounds of random cohorts of 7 of 12 clients, the state fed back; some have invalid clients, infinite or missing
    losses, large or zero updates, or no valid clients. A rule that needs root data gets that of a quadratic loss. The
    clauses:

    - state: keeps its structure, shapes and dtypes, and no number in it becomes NaN;
    - shapes: the update is like that of one client, the weights are float32 [K];
    - finite: update and weights;
    - weights: none is negative, and they sum to 1 or are all 0;
    - invalid: invalid clients have weight 0;
    - no_valid_clients: then the update is zero;
    - client_weights: alpha is None, or weights [N] of all clients;
    - info: scalars with the same names and dtypes in all rounds;
    - jit, vmap: the results are the same inside these (of `jit`, in one round);
    - trace: `init`, `client_weights` and `measure` work inside `jax.jit`, too;
    - order: update, weights and state do not depend on the order of the clients;
    - observe_losses: if the rule has it, it keeps the state's form, and `aggregate` works without losses;
    - gradient: `jax.grad` of the update by the clients' updates is finite; the attack `ascent` needs it;
    - identical: if all clients send the same update, it is the result, also if four of them are invalid.

    >>> import fedsim
    >>> from fedsim.testing import check_aggregator
    >>> sum_of_updates = fedsim.aggregators.from_weights(lambda report: 1.0 * report.valid)
    >>> check_aggregator(sum_of_updates)
    Traceback (most recent call last):
    ...
    AssertionError: weights: with typical clients the weights must sum to 1 or 0, got 7
    """
    check(aggregator, Aggregator, CLAUSES, lambda: _Case(aggregator, seed), skip)
