"""The contract of an attack, as `fedsim.attacks` states it."""

from collections.abc import Collection

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.aggregators import fedavg
from fedsim.core.contracts import Attack, AttackContext
from fedsim.core.reports import FORGED_UPDATES, forged_report
from fedsim.core.types import Array, CohortReport, HParams, PyTree, RoundRecord, Variables
from fedsim.testing import require, tiny
from fedsim.testing.clauses import Round, StatefulFunctionCase, by_name, check, jit, state, take_rows, vmap
from fedsim.testing.reports import (
    COHORT_SIZE,
    ROOT,
    draw_clients,
    draw_report,
    equalize_updates,
    invalidate,
    make_variables,
)

KEY = jax.random.key(0)
MAX_SCALE = 2**16  # of the numbers of examples that an attack may multiply
ROUNDS, HPARAMS = 2, HParams(learning_rate=0.1)  # of the simulation


class _Case(StatefulFunctionCase):
    def __init__(self, attack: Attack, seed: int) -> None:
        self.attack, rng = attack, np.random.default_rng(seed)
        self.num_examples, self.losses = draw_clients(rng)
        self.data = tiny.draw_data(rng)
        report = draw_report(rng, self.num_examples)
        some = jnp.arange(COHORT_SIZE) % 3 == 1
        self.initial_state = attack.init(make_variables(), self.num_examples)
        cohorts = {
            "some malicious clients": (report, some),
            "no malicious clients": (report, jnp.zeros(COHORT_SIZE, bool)),
            "only malicious clients": (report, jnp.ones(COHORT_SIZE, bool)),
            "invalid clients": (invalidate(report, [1, 2], jnp.inf), some),
            "all malicious clients invalid": (invalidate(report, [1, 4], jnp.nan), some),
            "no valid clients": (invalidate(report, list(range(COHORT_SIZE)), jnp.nan), some),
            "identical updates": (equalize_updates(report), some),
            "some malicious clients again": (draw_report(rng, self.num_examples), some),
        }
        super().__init__(self.forge, self.initial_state, cohorts)

    def forge(self, state: PyTree, report: CohortReport, malicious: Array) -> tuple[PyTree, PyTree]:
        """((forged report, forged updates), next state); None means the truth."""
        forged_report = forged_updates = None
        if self.attack.forge_report is not None:
            forged_report = self.attack.forge_report(state, report._replace(updates=()), malicious, KEY)
        if self.attack.forge_updates is not None:
            aggregate = lambda report: fedavg().aggregate((), report, KEY)[0]
            next_loss = lambda aggregate, mask, key: ROOT.losses(jax.tree.map(lambda u: u[None], aggregate.update))[0]
            context = AttackContext(report, malicious, make_variables(), aggregate, next_loss)
            forged_updates, state = require.pair(self.attack.forge_updates(state, context, KEY), FORGED_UPDATES)
        return (forged_report, forged_updates), state

    def require_same(self, outputs: tuple[PyTree, PyTree], round: Round, message: str) -> None:
        rows, (result, next_state) = np.flatnonzero(_malicious(round)), outputs
        (report, updates), (expected_report, expected_updates) = take_rows(result, rows), take_rows(round.result, rows)
        require.close(report, expected_report, message)
        require.close(updates, expected_updates, message, require.max_abs(round.inputs[0].updates))
        require.close(next_state, round.next_state, message)


def _malicious(round: Round) -> Array:
    """The clients [K] whose forged values reach the server."""
    report, malicious = round.inputs
    return malicious & report.valid


def _forge_report(case: _Case) -> None:
    if case.attack.forge_report is None:
        return
    for round in case.rounds:
        report = round.inputs[0]
        _require_report(round.result[0], report, _malicious(round), round.name)
    ids = jnp.arange(len(case.num_examples))
    for scale, name in ((1, "all clients"), (MAX_SCALE, f"{MAX_SCALE} times as many examples")):
        report = CohortReport(ids, scale * case.num_examples, case.losses, (), case.num_examples > 0)
        forged = case.attack.forge_report(case.initial_state, report, ids % 2 == 0, KEY)
        _require_report(forged, report, ids % 2 == 0, f"{name} before the first round")


def _require_report(forged: tuple[Array, Array], report: CohortReport, malicious: Array, name: str) -> None:
    num_examples, losses = forged_report(forged, report.num_examples.shape, f"with {name} ")
    is_float = jnp.issubdtype(losses.dtype, jnp.floating)
    require.true(is_float, f"forged losses must be floats, got {require.array_type(losses)}")
    reported = malicious & jnp.isfinite(report.losses)
    require.finite(jnp.where(reported, losses, 0.0), f"with {name} the forged losses")
    is_negative = jnp.where(reported, num_examples, 0) < 0
    require.true(not jnp.any(is_negative), f"with {name} forged num_examples must not be negative")


def _forge_updates(case: _Case) -> None:
    for round in case.rounds:
        if round.result[1] is not None:
            require.like(round.result[1], round.inputs[0].updates, f"with {round.name} the forged updates")


def _finite(case: _Case) -> None:
    for round in case.rounds:
        forged = take_rows(round.result[1], np.flatnonzero(_malicious(round)))
        require.finite(forged, f"with {round.name} the malicious clients' updates")


def _simulation(case: _Case) -> None:
    corrupted = np.arange(len(tiny.NUM_EXAMPLES)) % 2 == 0
    data = case.data._replace(corrupted=jnp.asarray(corrupted))
    simulation = tiny.make_simulation(attack=case.attack)

    def run() -> tuple[Variables, Variables, RoundRecord]:
        before = simulation.init(KEY, data, HPARAMS)
        after, records = simulation.run_rounds(before, data, HPARAMS, ROUNDS)
        return before.variables, after.variables, records

    before, after, records = jax.jit(run)()
    require.finite(after, f"after {ROUNDS} rounds the model")
    evaluate = jax.jit(simulation.task.metrics)
    for client, loss in zip(np.asarray(records.client_ids[0]), records.losses[0], strict=True):
        if not corrupted[client]:
            start, size = int(data.offsets[client]), int(data.num_examples[client])
            examples = slice(start, start + size)
            metrics = evaluate(before, data.x[examples], data.y[examples], jnp.ones(size, bool))
            message = "the recorded loss of an honest client must be its true one, but differs"
            require.close(loss, metrics.loss_sum / metrics.num_examples, message)


CLAUSES = by_name(state, _forge_report, _forge_updates, _finite, jit, vmap, _simulation)


def check_attack(attack: Attack, *, seed: int = 0, skip: Collection[str] = ()) -> None:
    """Raises `AssertionError` with a sentence if `attack` violates the contract; `skip` names clauses to leave out.

    Rounds of random cohorts of 7 clients, the state fed back; some, all or none are malicious, some or all invalid.
    Only values for valid malicious clients are checked. The clauses:

    - state: keeps its structure, shapes and dtypes, and no number in it becomes NaN;
    - forge_report: numbers of examples [K] are integers and not negative, losses [K] are finite if the true ones are;
      also for all N clients before the first round;
    - forge_updates: updates like those of the report;
    - finite: malicious clients' updates, if the honest ones are finite;
    - jit, vmap: the results are the same inside these (of `jit`, in one round);
    - simulation: two rounds run, the model stays finite, and the losses of honest clients are recorded unchanged.

    >>> import fedsim
    >>> from fedsim.testing import check_attack
    >>> check_attack(fedsim.attacks.ipm(tau=0.5))
    """
    check(attack, Attack, CLAUSES, lambda: _Case(attack, seed), skip)
