"""The contract of an attack, as `fedsim.attacks` states it."""

from collections.abc import Collection
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.aggregators import fedavg
from fedsim.core.types import Aggregate, Array, Attack, CohortReport, HParams, PyTree, Round, RoundRecord, Variables
from fedsim.testing import tiny
from fedsim.testing.clauses import (
    check,
    kind,
    largest,
    require,
    require_close,
    require_finite,
    require_like,
    require_no_new_nan,
    rows,
    stacked,
    unlike,
)
from fedsim.testing.reports import COHORT_SIZE, alike, federation, ordinary, variables, without

KEY = jax.random.key(0)
ROUNDS, HPARAMS = 2, HParams(learning_rate=0.1)  # of the simulation

Said = tuple[Array, Array] | None
Sent = PyTree | None  # None: the truth


class _Round(NamedTuple):
    name: str
    state: PyTree
    report: CohortReport
    corrupted: Array
    said: Said
    sent: Sent
    next_state: PyTree

    @property
    def lies(self) -> Array:
        """Whose values count."""
        return self.corrupted & self.report.valid


class _Case:
    def __init__(self, attack: Attack, seed: int) -> None:
        self.attack, rng = attack, np.random.default_rng(seed)
        self.counts, self.losses = federation(rng)
        self.data = tiny.federation(rng)
        report = ordinary(rng, self.counts)
        some = jnp.arange(COHORT_SIZE) % 3 == 1
        self.cohorts: dict[str, tuple[CohortReport, Array]] = {
            "some corrupted": (report, some),
            "nobody corrupted": (report, jnp.zeros(COHORT_SIZE, bool)),
            "everybody corrupted": (report, jnp.ones(COHORT_SIZE, bool)),
            "invalid clients": (without(report, [1, 2], jnp.inf), some),
            "the only liars invalid": (without(report, [1, 4], jnp.nan), some),
            "nobody valid": (without(report, list(range(COHORT_SIZE)), jnp.nan), some),
            "identical updates": (alike(report), some),
            "some corrupted again": (ordinary(rng, self.counts), some),
        }

    def play(self, state: PyTree, report: CohortReport, corrupted: Array, key: Array) -> tuple[Said, Sent, PyTree]:
        """What is said and sent in one round, and the next state."""
        said = sent = None
        if self.attack.say is not None:
            said = self.attack.say(state, report._replace(updates=()), corrupted, key)
        if self.attack.send is not None:
            sent, state = self.attack.send(state, Round(report, corrupted, variables(), _mean), key)
        return said, sent, state

    @cached_property
    def rounds(self) -> list[_Round]:
        """A round with each cohort, outside of `jit`, the state fed back, until it changes its kind."""
        state, rounds = self.attack.init(variables(), self.counts), []
        for name, (report, corrupted) in self.cohorts.items():
            said, sent, next_state = self.play(state, report, corrupted, KEY)
            rounds.append(_Round(name, state, report, corrupted, said, sent, next_state))
            if unlike(next_state, state):
                break
            state = next_state
        return rounds


def _mean(report: CohortReport) -> Aggregate:
    return fedavg().aggregate((), report, KEY)[0]


def _state(case: _Case) -> None:
    for number, each in enumerate(case.rounds, 1):
        require_like(each.next_state, each.state, f"after round {number} the state")
        require_no_new_nan(each.next_state, each.state, f"with {each.name} the state")


def _say(case: _Case) -> None:
    for each in case.rounds:
        if each.said is not None:
            _require_said(each.said, each.report.counts, each.lies & jnp.isfinite(each.report.losses), each.name)
    if case.attack.say is not None:
        state, ids = case.attack.init(variables(), case.counts), jnp.arange(len(case.counts))
        report = CohortReport(ids, case.counts, case.losses, (), case.counts > 0)
        said = case.attack.say(state, report, ids % 2 == 0, KEY)
        _require_said(said, case.counts, (ids % 2 == 0) & jnp.isfinite(case.losses), "all clients before the rounds")


def _require_said(said: tuple[Array, Array], counts: Array, told: Array, name: str) -> None:
    said_counts, said_losses = said
    shape = f"[{len(counts)}]"
    require(jnp.shape(said_counts) == counts.shape, f"with {name} the counts are {kind(said_counts)}, not of {shape}")
    require(jnp.shape(said_losses) == counts.shape, f"with {name} the losses are {kind(said_losses)}, not of {shape}")
    require(jnp.issubdtype(said_counts.dtype, jnp.integer), f"the counts are {kind(said_counts)}, no integers")
    require(jnp.issubdtype(said_losses.dtype, jnp.floating), f"the losses are {kind(said_losses)}, no floats")
    require_finite(jnp.where(told, said_losses, 0.0), f"with {name} a loss that a liar says")
    require(jnp.all(jnp.where(told, said_counts, 0) >= 0), f"with {name} a count that a liar says is negative")


def _send(case: _Case) -> None:
    for each in case.rounds:
        if each.sent is not None:
            require_like(each.sent, each.report.updates, f"with {each.name} what is sent")


def _finite(case: _Case) -> None:
    for each in case.rounds:
        require_finite(rows(each.sent, np.flatnonzero(each.lies)), f"with {each.name} a liar's update")


def _jit(case: _Case) -> None:
    jitted = jax.jit(case.play)
    for each in case.rounds:
        result = jitted(each.state, each.report, each.corrupted, KEY)
        _require_same(result, each, f"with {each.name} it does something else inside jax.jit")


def _vmap(case: _Case) -> None:
    arguments = stacked([(each.state, each.report, each.corrupted) for each in case.rounds])
    mapped = jax.jit(jax.vmap(case.play, (0, 0, 0, None)))(*arguments, KEY)
    for i, each in enumerate(case.rounds):
        _require_same(rows(mapped, i), each, f"with {each.name} it does something else inside jax.vmap")


def _require_same(result: tuple[Said, Sent, PyTree], each: _Round, sentence: str) -> None:
    liars = np.flatnonzero(each.lies)
    said, sent, state = result
    require_close(rows(said, liars), rows(each.said, liars), sentence)
    require_close(rows(sent, liars), rows(each.sent, liars), sentence, largest(each.report.updates))
    require_close(state, each.next_state, sentence)


def _simulation(case: _Case) -> None:
    corrupted = np.arange(len(tiny.COUNTS)) % 2 == 0
    data = case.data._replace(corrupted=jnp.asarray(corrupted))
    simulation = tiny.simulation(attack=lambda hparams: case.attack)

    def run() -> tuple[Variables, Variables, RoundRecord]:
        before = simulation.init(KEY, data, HPARAMS)
        after, records = simulation.run_rounds(before, data, HPARAMS, ROUNDS)
        return before.variables, after.variables, records

    before, after, records = jax.jit(run)()
    require_finite(after, f"after {ROUNDS} rounds the model")
    for client, loss in zip(np.asarray(records.client_ids[0]), records.losses[0], strict=True):
        if not corrupted[client]:
            own = slice(int(data.offsets[client]), int(data.offsets[client] + data.counts[client]))
            metrics = simulation.task.metrics(
                before, data.x[own], data.y[own], jnp.ones(int(data.counts[client]), bool)
            )
            true = metrics.loss_sum / metrics.num_examples
            require_close(loss, true, "the recorded loss of an honest client is not its own")


_CLAUSES = {
    "state": _state,
    "say": _say,
    "send": _send,
    "finite": _finite,
    "jit": _jit,
    "vmap": _vmap,
    "simulation": _simulation,
}
CLAUSES = tuple(_CLAUSES)


def check_attack(attack: Attack, *, seed: int = 0, skip: Collection[str] = ()) -> None:
    """Raises `AssertionError` with a sentence where it breaks the contract; `skip` names clauses to leave out.

    Rounds with random cohorts of 7 clients, the state fed back: some, all or none of them corrupted, some or all not
    valid. What an attack gives for others than its valid clients does not count. The clauses:

    - state: it keeps structure, shapes and dtypes, and no number in it becomes NaN;
    - say: counts [K] are integers and not negative, losses [K] are finite where the true ones are; all N clients are
      asked before the first round;
    - send: updates like those of the report;
    - finite: liars' updates, where the honest ones are finite;
    - jit, vmap: the same results in there;
    - simulation: two rounds run with it, and the model stays finite, and honest clients' recorded losses are their own.
    """
    check(_CLAUSES, lambda: _Case(attack, seed), skip)
