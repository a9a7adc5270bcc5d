"""The contract of a pre-aggregator, as `fedsim.aggregators` states it."""

from collections.abc import Collection

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.core.contracts import PreAggregator
from fedsim.core.types import CohortReport, PyTree
from fedsim.testing import require
from fedsim.testing.clauses import Round, StatefulFunctionCase, by_name, check, gradient, jit, take_rows, vmap
from fedsim.testing.reports import COHORT_SIZE, draw_clients, draw_report, draw_reports, equalize_updates

KEY = jax.random.key(0)


class _Case(StatefulFunctionCase):
    def __init__(self, pre_aggregator: PreAggregator, seed: int) -> None:
        self.pre_aggregator, rng = pre_aggregator, np.random.default_rng(seed)
        num_examples, _ = draw_clients(rng)
        reports = {name: (report,) for name, report in draw_reports(rng, num_examples).items()}
        self.identical = equalize_updates(draw_report(rng, num_examples))
        super().__init__(lambda state, report: (pre_aggregator(report, KEY), state), (), reports)

    def require_same(self, outputs: tuple[PyTree, PyTree], round: Round, message: str) -> None:
        require.close(outputs[0], round.result, message, require.max_abs(round.inputs[0].updates))


def _shapes(case: _Case) -> None:
    num_rows = {len(round.result.valid) for round in case.rounds if isinstance(round.result, CohortReport)}
    for round in case.rounds:
        before, after = round.inputs[0], round.result
        require.true(isinstance(after, CohortReport), f"the result must be a CohortReport, got {type(after).__name__}")
        require.true(len(num_rows) == 1, f"the number of rows must be the same in all rounds, got {sorted(num_rows)}")
        k = len(after.valid)
        require.true(k <= COHORT_SIZE, f"the number of rows must be at most {COHORT_SIZE}, the cohort's, got {k}")
        require.true(k == COHORT_SIZE or after.mixing is not None, f"mixing must be given for {k} rows, got None")
        for name in ("client_ids", "num_examples", "losses", "valid"):
            require.array(getattr(after, name), f"{getattr(before, name).dtype}[{k}]", f"with {round.name} {name}")
        expected = jax.tree.map(lambda u, k=k: jax.ShapeDtypeStruct((k, *u.shape[1:]), u.dtype), before.updates)
        require.like(after.updates, expected, "the updates")
        for name, value in after.info.items():
            require.shape(value, (), f"info[{name!r}]")
        if after.mixing is not None:
            require.array(after.mixing, f"float32[{k}, {COHORT_SIZE}]", "mixing")
    weighted = case.rounds[0].inputs[0]._replace(weights=jnp.full(COHORT_SIZE, 1 / COHORT_SIZE))
    after = jax.eval_shape(lambda report: case.pre_aggregator(report, KEY), weighted)
    require.array(after.weights, f"float32[{after.valid.size}]", "if the report has weights, those of the result")


def _mixing(case: _Case) -> None:
    for round in case.rounds:
        if round.result.mixing is not None:
            mixing, name = np.asarray(round.result.mixing), f"with {round.name} mixing"
            valid, valid_before = np.asarray(round.result.valid), np.asarray(round.inputs[0].valid)
            row_sums = mixing[valid].sum(axis=1)
            require.true((mixing >= 0).all(), f"{name} must not be negative")
            require.true((abs(row_sums - 1) < 1e-5).all(), f"{name} must sum to 1 in each valid row, got {row_sums}")
            require.true((mixing[:, ~valid_before] == 0).all(), f"{name} must be 0 for invalid clients")


def _finite(case: _Case) -> None:
    for round in case.rounds:
        require.finite(round.result.updates, f"with {round.name} the updates")


def _invalid(case: _Case) -> None:
    for round in case.rounds:
        valid = np.asarray(round.result.valid)
        if round.result.mixing is None:
            becomes_valid = valid & ~np.asarray(round.inputs[0].valid)
            require.true(not becomes_valid.any(), f"with {round.name} an invalid client must not become valid")
        for update in require.to_float64(round.result.updates):
            require.true((update[~valid] == 0).all(), f"with {round.name} the updates of invalid rows must be 0")


def _no_valid_clients(case: _Case) -> None:
    for round in case.rounds:
        if not bool(jnp.any(round.inputs[0].valid)):
            require.true(not jnp.any(round.result.valid), "without valid clients no row must be valid")


def _identical(case: _Case) -> None:
    after = case.pre_aggregator(case.identical, KEY)
    rows = np.flatnonzero(np.asarray(after.valid))
    require.true(rows.size > 0, "a row must stay valid if all clients send the same update")
    first = take_rows(after.updates, rows[0])
    for row in rows:
        message = "all rows must have the same update if all clients do, but they differ"
        require.close(take_rows(after.updates, int(row)), first, message)


CLAUSES = by_name(_shapes, _mixing, _finite, _invalid, _no_valid_clients, gradient, _identical, jit, vmap)


def check_pre_aggregator(pre_aggregator: PreAggregator, *, seed: int = 0, skip: Collection[str] = ()) -> None:
    """Raises `AssertionError` with a sentence if `pre_aggregator` violates the contract; `skip` names clauses to skip.

    Random cohorts of 7 clients; some have invalid clients, infinite or missing losses, large or zero updates, or no
    valid clients. The clauses:

    - shapes: a `CohortReport` of 7 rows, or of a smaller, constant number K' of rows with `mixing` [K', 7], and with
      `weights` if the report has some;
    - mixing: no share is negative, those of a valid row sum to 1, and invalid clients have none;
    - finite: the updates;
    - invalid: no invalid client becomes valid, and the updates of invalid rows are zero;
    - no_valid_clients: then no row is valid;
    - gradient: `jax.grad` of the updates by the clients' updates is finite; the attack `ascent` needs it;
    - identical: if all clients send the same update, all rows have the same update;
    - jit, vmap: the results are the same inside these (of `jit`, in one round).

    >>> import jax, fedsim
    >>> from fedsim.testing import check_pre_aggregator
    >>> check_pre_aggregator(fedsim.aggregators.clipping(threshold=1.0))
    """
    check(pre_aggregator, PreAggregator, CLAUSES, lambda: _Case(pre_aggregator, seed), skip)
