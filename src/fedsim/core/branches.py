"""Several methods in one program: which rule and which attack a run has is data, an index that chooses a branch.

Under `vmap`, a `lax.switch` with a batched index computes every branch. So a `Branch` is shared by all runs that are
mapped together: it reaches the program with what they share, never among what is mapped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedsim.core import require
from fedsim.core.chain import Chain, observe_losses, run_rule
from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.method import Method, MethodFunction
from fedsim.core.reports import FORGED_UPDATES, forged_report
from fedsim.core.rule_trace import RuleTrace
from fedsim.core.types import Aggregate, Array, CohortReport, HParams, PyTree, Variables


class Branch(NamedTuple):
    """The rule and the attack of all runs that are mapped together."""

    server: ArrayLike = 0
    """[] int32, position of the server among those of a family."""
    attack: ArrayLike = 0
    """[] int32, position of the attack."""


@dataclass(frozen=True)
class MethodFamily:
    """Methods that differ in pre-aggregators, rule and attack only, as one `MethodFunction`; static.

    States have one slot for each server and each attack; only the slots of the branch are used and change. Scalars that
    a rule reports have the position of its server before their name, as in "2/distance".
    """

    base: MethodFunction
    """Builds everything else of a round."""
    servers: Sequence[Callable[[HParams], Chain]]
    """Builds each of the servers."""
    traces: Sequence[RuleTrace]
    """What tracing each of the servers shows."""
    attacks: Sequence[Callable[[HParams], Attack]]
    """Builds each of the attacks."""
    branch: Branch = field(default_factory=Branch)
    """Which of them."""

    def __call__(self, hparams: HParams, round: Array) -> Method:
        """The method of the round, with the server and the attack of the branch."""
        server = _switch_servers([make(hparams) for make in self.servers], self.branch.server, self.trace.info)
        attack = _switch_attacks([make(hparams) for make in self.attacks], self.branch.attack)
        return self.base(hparams, round)._replace(aggregator=server, attack=attack)

    @property
    def trace(self) -> RuleTrace:
        """What tracing the server of the branch shows."""
        trains_on_root = [trace.trains_on_root for trace in self.traces]
        is_same = all(trains_on_root) or not any(trains_on_root)
        return RuleTrace(
            state=tuple(trace.state for trace in self.traces),
            info={
                info_name(n, name): shape for n, trace in enumerate(self.traces) for name, shape in trace.info.items()
            },
            uses_losses=any(trace.uses_losses for trace in self.traces),
            trains_on_root=trains_on_root[0] if is_same else jnp.asarray(trains_on_root)[self.branch.server],
        )


def info_name(position: int, name: str) -> str:
    """The name of a scalar that the rule of the server at `position` reports as `name`."""
    return f"{position}/{name}"


def _switch_servers(servers: Sequence[Chain], index: ArrayLike, info: dict[str, jax.ShapeDtypeStruct]) -> Chain:
    """The server at `index`, with the `info` of all; its state is a tuple with a slot for each of `servers`."""

    def init(variables: Variables, num_examples: Array, losses: Array) -> PyTree:
        return tuple(server.init(variables, num_examples, losses) for server in servers)

    def aggregate(state: PyTree, report: CohortReport, key: Array) -> tuple[Aggregate, PyTree]:
        zeros, root = jax.tree.map(jnp.zeros_like, info), report.measurements

        def run(position: int, state: PyTree, report: CohortReport) -> tuple[Aggregate, PyTree]:
            result, new = run_rule(servers[position], state[position], report, key, root)
            own_info = {info_name(position, name): value for name, value in result.info.items()}
            return result._replace(info=zeros | own_info), _with_slot(state, position, new)

        return _switch(index, run, len(servers), state, report._replace(measurements=None))

    def observe(state: PyTree, report: CohortReport) -> PyTree:
        def run(position: int, state: PyTree, report: CohortReport) -> PyTree:
            return _with_slot(state, position, observe_losses(servers[position], state[position], report))

        return _switch(index, run, len(servers), state, report)

    def client_weights(state: PyTree) -> PyTree:
        return tuple(server.client_weights(slot) for server, slot in zip(servers, state, strict=True))

    uses_root = any(server.measure is not None for server in servers)
    return Chain(init, aggregate, client_weights, observe, (lambda root, report: root) if uses_root else None)


def _switch_attacks(attacks: Sequence[Attack], index: ArrayLike) -> Attack:
    """The attack at `index`; its state is a tuple with a slot for each of `attacks`."""

    def init(variables: Variables, num_examples: Array) -> PyTree:
        return tuple(attack.init(variables, num_examples) for attack in attacks)

    def forge_report(state: PyTree, report: CohortReport, malicious: Array, key: Array) -> tuple[Array, Array]:
        def run(position: int, state: PyTree) -> tuple[Array, Array]:
            if (forge := attacks[position].forge_report) is None:
                return report.num_examples, report.losses
            num_examples, losses = forged_report(forge(state[position], report, malicious, key), malicious.shape)
            return jnp.asarray(num_examples, report.num_examples.dtype), jnp.asarray(losses, report.losses.dtype)

        return _switch(index, run, len(attacks), state)

    def forge_updates(state: PyTree, context: AttackContext, key: Array) -> tuple[PyTree, PyTree]:
        def run(position: int, state: PyTree) -> tuple[PyTree, PyTree]:
            if (forge := attacks[position].forge_updates) is None:
                return context.report.updates, state
            forged, next_state = require.pair(forge(state[position], context, key), FORGED_UPDATES)
            return forged, _with_slot(state, position, next_state)

        return _switch(index, run, len(attacks), state)

    forges_reports = any(attack.forge_report is not None for attack in attacks)
    forges_updates = any(attack.forge_updates is not None for attack in attacks)
    return Attack(init, forge_report if forges_reports else None, forge_updates if forges_updates else None)


def _switch(index: ArrayLike, run: Callable[..., PyTree], number: int, *operands: PyTree) -> PyTree:
    """`run(index, *operands)` by `number` branches.

    A single one gets another beside it that is never taken: without a condition, the compiler would fuse it with what
    surrounds it, and last bits would differ from those of the same branch in a family.
    """
    branches: list[Callable[..., PyTree]] = [partial(run, position) for position in range(number)]
    if number == 1:
        shapes = jax.eval_shape(branches[0], *operands)
        branches.append(lambda *operands: jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes))
    return jax.lax.switch(index, branches, *operands)


def _with_slot(state: tuple[PyTree, ...], position: int, slot: PyTree) -> tuple[PyTree, ...]:
    return (*state[:position], slot, *state[position + 1 :])
