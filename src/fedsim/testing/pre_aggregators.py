"""The contract of what stands before a rule, as `fedsim.aggregators` states it."""

from collections.abc import Collection
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.core.types import CohortReport, PreAggregator
from fedsim.testing.clauses import (
    check,
    kind,
    largest,
    numbers,
    require,
    require_close,
    require_finite,
    require_like,
    rows,
    stacked,
)
from fedsim.testing.reports import COHORT_SIZE, alike, federation, ordinary, reports

KEY = jax.random.key(0)


class _Result(NamedTuple):
    name: str
    report: CohortReport
    after: CohortReport


class _Case:
    def __init__(self, pre_aggregator: PreAggregator, seed: int) -> None:
        self.pre_aggregator, rng = pre_aggregator, np.random.default_rng(seed)
        counts, _ = federation(rng)
        self.reports = reports(rng, counts)
        self.alike = alike(ordinary(rng, counts))

    @cached_property
    def results(self) -> list[_Result]:
        """Outside of `jit`."""
        return [_Result(name, report, self.pre_aggregator(report, KEY)) for name, report in self.reports.items()]


def _shapes(case: _Case) -> None:
    num_rows = {len(each.after.valid) for each in case.results if isinstance(each.after, CohortReport)}
    for each in case.results:
        after = each.after
        require(isinstance(after, CohortReport), f"the result is {type(after).__name__}, no CohortReport")
        require(len(num_rows) == 1, f"it makes {sorted(num_rows)} rows; their number must always be the same")
        k = len(after.valid)
        require(k <= COHORT_SIZE, f"it makes {k} rows of {COHORT_SIZE}")
        require(k == COHORT_SIZE or after.mixing is not None, f"it makes {k} rows, but no mixing says whose they are")
        for name in ("client_ids", "counts", "losses", "valid"):
            row = jnp.zeros(k, getattr(each.report, name).dtype)
            require_like(getattr(after, name), row, f"with {each.name} {name}")
        like = jax.tree.map(lambda u, k=k: jax.ShapeDtypeStruct((k, *u.shape[1:]), u.dtype), each.report.updates)
        require_like(after.updates, like, "the updates")
        if after.mixing is not None:
            wanted = f"float32[{k}, {COHORT_SIZE}]"
            require(kind(after.mixing) == wanted, f"mixing is {kind(after.mixing)}, not {wanted}")


def _mixing(case: _Case) -> None:
    for each in case.results:
        if each.after.mixing is not None:
            mixing = np.asarray(each.after.mixing)
            require((mixing >= 0).all(), f"with {each.name} a share in mixing is negative")
            require(
                (mixing.sum(axis=1)[np.asarray(each.after.valid)] <= 1 + 1e-5).all(),
                f"with {each.name} the shares in a row of mixing sum to more than 1",
            )
            on_invalid = mixing[:, ~np.asarray(each.report.valid)]
            require((on_invalid == 0).all(), f"with {each.name} a client that is not valid has a share in mixing")
            in_valid = mixing[np.asarray(each.after.valid)].sum(axis=1)
            require((in_valid > 0).all(), f"with {each.name} nobody has a share in a valid row of mixing")


def _finite(case: _Case) -> None:
    for each in case.results:
        require_finite(each.after.updates, f"with {each.name} an update")


def _invalid(case: _Case) -> None:
    for each in case.results:
        valid = np.asarray(each.after.valid)
        if each.after.mixing is None:
            kept = valid & ~np.asarray(each.report.valid)
            require(not kept.any(), f"with {each.name} a client that is not valid becomes valid")
        for update in numbers(each.after.updates):
            require((update[~valid] == 0).all(), f"with {each.name} the update of a row that is not valid is not zero")


def _nobody(case: _Case) -> None:
    for each in case.results:
        if not bool(jnp.any(each.report.valid)):
            require(not jnp.any(each.after.valid), "with nobody valid a row is valid")


def _identical(case: _Case) -> None:
    after = case.pre_aggregator(case.alike, KEY)
    valid = np.flatnonzero(np.asarray(after.valid))
    require(valid.size > 0, "of clients that all send one update none is left")
    one = rows(after.updates, valid[0])
    for row in valid:
        require_close(rows(after.updates, int(row)), one, "clients that all send one update do not any more")


def _jit(case: _Case) -> None:
    jitted = jax.jit(case.pre_aggregator)
    for each in case.results:
        got = jitted(each.report, KEY)
        sentence = f"with {each.name} it gives something else inside jax.jit"
        require_close(got, each.after, sentence, largest(each.report.updates))


def _vmap(case: _Case) -> None:
    cohorts = stacked([each.report for each in case.results])
    mapped = jax.jit(jax.vmap(case.pre_aggregator, (0, None)))(cohorts, KEY)
    for i, each in enumerate(case.results):
        sentence = f"with {each.name} it gives something else inside jax.vmap"
        require_close(rows(mapped, i), each.after, sentence, largest(each.report.updates))


_CLAUSES = {
    "shapes": _shapes,
    "mixing": _mixing,
    "finite": _finite,
    "invalid": _invalid,
    "nobody": _nobody,
    "identical": _identical,
    "jit": _jit,
    "vmap": _vmap,
}
CLAUSES = tuple(_CLAUSES)


def check_pre_aggregator(pre_aggregator: PreAggregator, *, seed: int = 0, skip: Collection[str] = ()) -> None:
    """Raises `AssertionError` with a sentence where it breaks the contract; `skip` names clauses to leave out.

    Random cohorts of 7 clients: some have invalid clients, losses that are infinite or missing, updates that are large
    or zero, or nobody valid at all. The clauses:

    - shapes: a `CohortReport` of 7 rows, or always of the same smaller number, with `mixing` [K', 7];
    - mixing: no share is negative, those of a valid row sum to at most 1, and invalid clients have none;
    - finite: the updates;
    - invalid: nobody becomes valid who was not, and the update of an invalid row is zero;
    - nobody: without a valid client no row is valid;
    - identical: where all clients send one update, all rows have one update;
    - jit, vmap: the same results in there.
    """
    check(_CLAUSES, lambda: _Case(pre_aggregator, seed), skip)
