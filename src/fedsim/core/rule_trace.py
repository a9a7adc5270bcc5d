"""What tracing a rule shows: names and shapes, and what it needs."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedsim.core.chain import run_rule
from fedsim.core.contracts import Aggregator, RootEvaluator
from fedsim.core.types import Aggregate, Array, CohortReport, PyTree, Variables


class RuleTrace(NamedTuple):
    """What tracing a rule shows."""

    state: PyTree
    """Shapes of its state."""
    info: dict[str, jax.ShapeDtypeStruct]
    """The scalars that it records."""
    uses_losses: bool
    """Whether its state or its aggregate depends on the clients' losses."""
    trains_on_root: bool | Array
    """Whether it trains on root data; [] bool if that depends on a branch."""


def blank_report(variables: Variables, size: int) -> CohortReport:
    """A report of `size` clients with zeros in the shapes of `variables`, for traces."""
    ids = jnp.arange(size)
    updates = jax.tree.map(lambda a: jnp.zeros((size, *a.shape), a.dtype), variables)
    return CohortReport(ids, ids, jnp.zeros(size), updates, ids >= 0)


def trace_rule(rule: Aggregator, shapes: Variables, num_clients: int, cohort_size: int) -> RuleTrace:
    """Traces a round of the rule for models like `shapes`, without computing anything."""
    trains_on_root = False

    def run(losses: Array, all_losses: Array) -> tuple[PyTree, Aggregate]:
        variables = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)

        def train() -> PyTree:
            nonlocal trains_on_root
            trains_on_root = True
            return variables

        root = RootEvaluator(lambda updates: jnp.zeros(jax.tree.leaves(updates)[0].shape[0]), train)
        state = rule.init(variables, jnp.zeros(num_clients, jnp.int32), all_losses)
        report = blank_report(variables, cohort_size)._replace(losses=losses)
        return state, run_rule(rule, state, report, jax.random.key(0), root)[0]

    jaxpr, (state, aggregate) = jax.make_jaxpr(run, return_shape=True)(jnp.zeros(cohort_size), jnp.zeros(num_clients))
    read = set(map(id, jaxpr.jaxpr.outvars))
    for equation in reversed(jaxpr.jaxpr.eqns):  # bucketing averages losses that a rule may not read
        if not read.isdisjoint(map(id, equation.outvars)):
            read.update(map(id, equation.invars))
    uses_losses = any(id(value) in read for value in jaxpr.jaxpr.invars)
    info = {name: jax.ShapeDtypeStruct(a.shape, a.dtype) for name, a in aggregate.info.items()}
    return RuleTrace(state, info, uses_losses, trains_on_root)
